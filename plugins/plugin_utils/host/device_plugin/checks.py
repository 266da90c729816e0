# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds on a right node: the kubelet's settings, that it lives by them, what it offers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ...topology.types import Topology
from ..types import Check
from .node import Node, holds, state_policy
from .review import expected_resources
from .settings import Settings


def checks(
    settings: Settings, node: Node, host: Topology, wanted: dict[str, Any], evidence: Evidence
) -> Iterator[Check]:
    """Yield every check of a node, whatever its state."""
    if settings.state == "absent":
        return
    facts = knowledge("host/kubernetes.yml")
    if not node.distribution:
        yield Check.of(
            "KUBE-KUBELET-DOWN",
            "kubelet.service",
            node.active,
            "active" if node.active else "not active",
            "active",
        )
    for key, value in sorted(wanted.items()):
        found = (node.config or {}).get(key)
        yield Check.of(
            "KUBE-KUBELET-SETTING",
            key,
            None if node.config is None else holds(found, value),
            _shown(found),
            _shown(value),
            source=facts["kubelet"]["managers"]["source"],
        )
    yield from _policies(wanted, evidence)
    if not settings.dra_version:
        yield _resources(settings, node, host)


def _policies(wanted: dict[str, Any], evidence: Evidence) -> Iterator[Check]:
    """Yield whether the running kubelet lives by the policies: its state files say so."""
    states = knowledge("host/kubernetes.yml")["kubelet"]["state_files"]
    for name, key in (("cpu", "cpuManagerPolicy"), ("memory", "memoryManagerPolicy")):
        if key not in wanted:
            continue
        found = state_policy(evidence, states[name])
        yield Check.of(
            "KUBE-KUBELET-POLICY",
            states[name],
            None if found is None else found.lower() == wanted[key].lower(),
            found or "nothing",
            wanted[key],
            source=states["source"],
        )


def _resources(settings: Settings, node: Node, host: Topology) -> Check:
    """Return whether the kubelet has every GPU from the plugin, under the right name."""
    expected = expected_resources(settings, host)
    found = None
    if node.registered is not None:
        counts = {name: len(ids) for name, ids in node.registered.items()}
        found = {name: n for name, n in sorted(counts.items()) if name.startswith("amd.com/")}
    complete = None
    if expected is not None:
        complete = found == expected
    return Check.of(
        "KUBE-RESOURCES",
        "amd.com",
        complete,
        "no device plugin" if not found else _shown(found),
        "unknown, as the partition modes are" if expected is None else _shown(expected),
        source=knowledge("host/kubernetes.yml")["plugin"]["source"],
    )


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
