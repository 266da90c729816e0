# SPDX-License-Identifier: GPL-3.0-or-later

"""The one reader of plan documents: parsed, and checked before anything is rendered from it."""

from __future__ import annotations

import json
import re
from typing import Any

from ..deployment import MixedLayout, check_deployment
from ..documents import from_document
from ..findings import ApiaryError, error
from ..numbers import parse_cpulist
from .types import Plan, Replica, unit_name

_GPU = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def plan_of(document: Any, subject: str) -> Plan:
    """Return the plan of a document, checked as far as it can be without its host.

    Raises ApiaryError with DOC-… or PLAN-INVALID, or the deployment's findings.
    """
    plan = from_document(Plan, document, subject)
    check_plan(plan, subject)
    return plan


def parse_plan(text: str, subject: str) -> Plan:
    """Return the plan of a plan.json, as ``plan_of``; DOC-TYPE for what is no JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as failure:
        allowed = "JSON, as playbooks/plan.yml writes it"
        raise error(
            "DOC-TYPE", subject, f"is no JSON: {failure}", field="the plan", allowed=allowed
        ) from failure
    return plan_of(document, subject)


def check_plan(plan: Plan, subject: str) -> None:
    """Refuse a plan whose names or values would not stay where a unit file has them.

    Raises ApiaryError with PLAN-INVALID for the first wrong field, or the deployment's findings.
    """
    findings = check_deployment(plan.deployment)
    if findings:
        raise ApiaryError(*findings)
    _expect(bool(plan.replicas), subject, "replicas", plan.replicas, "at least one replica")
    name = plan.deployment.name
    _expect(plan.target == f"apiary-{name}.target", subject, "target", plan.target, "its own")
    sizes = tuple(len(replica.gpus) for replica in plan.replicas)
    _expect(sizes == plan.layout.sizes, subject, "layout", plan.layout.sizes, f"sizes {sizes}")
    nodes = 1 if isinstance(plan.layout, MixedLayout) else plan.layout.nodes
    node = plan.node
    if node is not None or nodes > 1:
        sound = node is not None and 0 <= node.rank < node.size == nodes == len(node.hosts)
        _expect(sound, subject, "node", node, f"a place among {nodes} hosts")
    for index, replica in enumerate(plan.replicas):
        _check_replica(replica, unit_name(name, index), subject, f"replicas[{index}]")


def _check_replica(replica: Replica, unit: str, subject: str, path: str) -> None:
    _expect(replica.unit == unit, subject, f"{path}.unit", replica.unit, unit)
    for key in replica.gpus:
        _expect(bool(_GPU.fullmatch(key)), subject, f"{path}.gpus", key, "PCI addresses")
    for port in (replica.port, replica.internal_port, replica.master_port):
        _expect(port is None or 0 < port < 65536, subject, f"{path}.port", port, "a port")
    for node in replica.memory_nodes:
        _expect(node >= 0, subject, f"{path}.memory_nodes", node, "node numbers")
    if replica.cpus is not None:
        try:
            sound = bool(parse_cpulist(replica.cpus)) and "\n" not in replica.cpus
        except ValueError:
            sound = False
        _expect(sound, subject, f"{path}.cpus", replica.cpus, "a list of CPUs such as 0-63")
    _expect(len(replica.argv) > 2, subject, f"{path}.argv", replica.argv, "serve and a model")
    for variable in replica.env:
        _expect(bool(_VARIABLE.fullmatch(variable)), subject, f"{path}.env", variable, "names")


def _expect(right: bool, subject: str, path: str, found: object, expected: str) -> None:
    if not right:
        raise error("PLAN-INVALID", subject, f"field {path}: found {found!r}, expected {expected}")
