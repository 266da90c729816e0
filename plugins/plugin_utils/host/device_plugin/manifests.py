# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's device plugin and node labeller as objects of a cluster."""

from __future__ import annotations

from typing import Any

from ...documents import knowledge
from .objects import objects
from .settings import Settings


def image(settings: Settings, tag: str, digest: str) -> str:
    """Return the reference of an image: the tag for people, the digest for the runtime."""
    name = knowledge("host/kubernetes.yml")["plugin"]["repository"]
    return f"{settings.registry}/{name}:{tag}" + (f"@{digest}" if digest else "")


def manifests(settings: Settings, naming: str) -> tuple[dict[str, Any], ...]:
    """Return the objects; with a DRA driver in the plugin's place only the labeller's."""
    facts = knowledge("host/kubernetes.yml")["plugin"]
    critical = {"key": "CriticalAddonsOnly", "operator": "Exists"}
    common = {
        "node_selector": settings.node_selector,
        "tolerations": [critical, *settings.tolerations],
    }
    # 0 turns the health checks off.
    pulse = facts["pulse_seconds"] if settings.health_enabled else 0
    plugin = {
        **common,
        "image": image(settings, settings.version, settings.digest),
        "args": [
            "-logtostderr=true",
            "-stderrthreshold=INFO",
            f"-pulse={pulse}",
            f"-resource_naming_strategy={naming}",
        ],
        "device_plugins": facts["device_plugins"],
        "exporter": facts["exporter_directory"],
        "health": settings.health_enabled,
    }
    tag = facts["labeller_tag_prefix"] + settings.version
    labeller = {
        **common,
        "image": image(settings, tag, settings.labeller_digest),
        "args": [f"-{label}" for label in facts["labels"]],
    }
    return (
        *(() if settings.dra_version else objects("plugin", plugin)),
        *(objects("labeller", labeller) if settings.labeller_enabled else ()),
    )
