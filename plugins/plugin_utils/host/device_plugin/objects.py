# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role is asked for and what it gets; AMD's device plugin and node labeller.

Objects are knowledge/host/kubernetes_objects.yml with values in their places, as YAML. A value
takes its place whole, so that nothing in it can be a field or an object of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from ...documents import knowledge, to_document
from ..types import ConcernPlan, LiveSetting


@dataclass(frozen=True)
class Settings:
    """The role's variables without their prefix; quantities are Kubernetes' (4Gi)."""

    state: Literal["present", "absent"] = "present"
    kubelet_enabled: bool = True
    kubelet_restart_allowed: bool = False
    pod_gpus: tuple[int, ...] = ()
    topology_manager_policy: Literal[
        "auto", "none", "best-effort", "restricted", "single-numa-node"
    ] = "auto"
    memory_manager_enabled: bool = True
    system_memory: str = "16Gi"
    kubelet_memory: str = "4Gi"
    eviction_memory: str = "1Gi"
    system_namespaces: tuple[str, ...] = ("kube-system",)
    naming: Literal["auto", "single", "mixed"] = "auto"
    health_enabled: bool = True
    labeller_enabled: bool = True
    version: str = "1.31.0.9"
    registry: str = "docker.io/rocm"
    digest: str = ""
    labeller_digest: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    dra_version: str = ""
    exporter_version: str = ""


@dataclass(frozen=True)
class DevicePluginPlan(ConcernPlan):
    """What a node gets, and what its cluster gets (``manifests``, as YAML in ``manifests_text``).

    ``restart``: the kubelet is stopped before the files are written and started afterwards.
    """

    node: bool = True
    restart: bool = False
    live: tuple[LiveSetting, ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    manifests_text: str = ""


_WHEN = "$when"


def objects(name: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the objects of one name; a value of None leaves its field out."""
    return tuple(_filled(knowledge("host/kubernetes_objects.yml")[name], values))


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, str) and part.startswith("$"):
        return values[part[1:]]
    if isinstance(part, list):
        return [_filled(item, values) for item in part if _is_there(item, values)]
    if not isinstance(part, dict):
        return part
    filled = {key: _filled(item, values) for key, item in part.items() if key != _WHEN}
    return {key: item for key, item in filled.items() if item is not None}


def _is_there(item: Any, values: Mapping[str, Any]) -> bool:
    conditional = isinstance(item, dict) and _WHEN in item
    return not conditional or bool(values[item[_WHEN]])


def to_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as one YAML stream, in the order in which they are given."""
    # Ansible's strings are subclasses, which YAML does not know.
    plain = json.loads(json.dumps([to_document(one) for one in documents]))
    return yaml.safe_dump_all(
        plain, sort_keys=False, default_flow_style=False, explicit_start=True, width=10_000
    )


MIB = 2**20
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": MIB, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"(\d+)(k|M|G|T|Ki|Mi|Gi|Ti|)")


def parse_memory(text: str) -> int | None:
    """Return the bytes of a whole quantity such as 4Gi; None for what is none, 5% among it."""
    found = _QUANTITY.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def format_memory(size: int) -> str:
    """Return bytes as a quantity that reads back as exactly the same."""
    return f"{size // MIB}Mi" if size and size % MIB == 0 else str(size)


def shares(total: int, parts: int) -> list[int]:
    """Return ``total`` bytes in ``parts`` equal shares of whole MiB; the first has the rest."""
    each = total // parts // MIB * MIB
    return [total - each * (parts - 1), *[each] * (parts - 1)]


def version(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with; () where it begins with none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()


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
