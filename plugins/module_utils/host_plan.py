# SPDX-License-Identifier: GPL-3.0-or-later

"""The one reader of plan.json on hosts: what modules and programs there need of a plan."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DIRECTORY = "/etc/apiary"


class PlannedReplica(NamedTuple):
    """One replica: its unit, its port, the keys of its GPUs and the NUMA nodes of its memory."""

    unit: str
    port: int
    gpus: list[str]
    memory_nodes: list[int]


class HostPlan(NamedTuple):
    """A plan: ``engine`` is name and version, ``model`` a path, ``document`` all of it."""

    deployment: str
    engine: str
    engine_version: str
    image: str | None
    model: str
    replicas: list[PlannedReplica]
    document: dict[str, Any]


def parse_host_plan(text: str) -> HostPlan:
    """Return the plan of a plan.json; raise ValueError where it is none."""
    try:
        document = json.loads(text)
        deployment = document["deployment"]
        engine = deployment["engine"]
        name, version = engine.get("name", "vllm"), engine["version"]
        replicas = [
            PlannedReplica(
                str(item["unit"]),
                item["port"],
                list(item["gpus"]),
                list(item.get("memory_nodes", ())),
            )
            for item in document["replicas"]
        ]
        return HostPlan(
            deployment["name"],
            f"{name} {version}",
            version,
            engine.get("image"),
            deployment["model"]["path"],
            replicas,
            document,
        )
    except (AttributeError, KeyError, TypeError) as failure:
        raise ValueError(f"it lacks {failure}") from failure
