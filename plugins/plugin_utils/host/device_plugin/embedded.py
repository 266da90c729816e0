# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes that starts the kubelet itself: its settings as flags in a file of K3s and RKE2."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding
from ..facts import command
from ..types import HostFile
from .node import Node


def facts() -> Mapping[str, Any]:
    """Return what is known of such distributions."""
    known: Mapping[str, Any] = knowledge("host/kubernetes.yml")["kubelet"]["embedded"]
    return known


def path(node: Node) -> str:
    """Return the file that the distribution reads our flags from."""
    return str(facts()["file"].format(name=node.distribution))


def settings_file(node: Node, wanted: Mapping[str, Any], header: str) -> HostFile:
    """Return that file; without settings it is to be gone."""
    if not wanted:
        return HostFile(path(node), None)
    flags = [f"{facts()['flags'][key]}={_value(key, value)}" for key, value in wanted.items()]
    # With the plus, flags of other files stay.
    return HostFile(path(node), header + yaml.safe_dump({"kubelet-arg+": flags}, width=1000))


def _value(key: str, value: Any) -> str:
    """Return a setting as its flag has it: maps and lists joined as the kubelet parses them."""
    if key == "reservedMemory":
        return ";".join(f"{one['numaNode']}:{_value('', one['limits'])}" for one in value)
    if isinstance(value, Mapping):
        sign = "<" if key == "evictionHard" else "="
        return ",".join(f"{name}{sign}{each}" for name, each in value.items())
    return str(value)


def findings(node: Node, wanted: Mapping[str, Any], evidence: Evidence) -> Iterator[Finding]:
    """Refuse distributions without such a file, and flags of others that decide the same."""
    known = facts()
    if node.distribution in known["others"]:
        yield Finding(
            "KUBE-DISTRIBUTION",
            evidence.host,
            f"its kubelet is started by {node.distribution}, expected a file for its settings",
            source=known["source"],
            by_hand=json.dumps(wanted, sort_keys=True),
            place=known["others"][node.distribution],
        )
    found = command(evidence, "embedded_flags")
    given = {line.strip().rstrip("=") for line in found.stdout.splitlines()} if found else set()
    both = sorted(given & {known["flags"][key] for key in wanted})
    if both:
        yield Finding(
            "KUBE-FLAGS",
            evidence.host,
            f"its kubelet is given {', '.join(both)} by another file of {node.distribution}",
            source=known["source"],
            arguments_path=f"/etc/rancher/{node.distribution}",
        )
