# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What plans say of what is measured: how much serves it, where it listens, what made it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..plan.naming import name_of
from ..plan.types import Plan


@dataclass(frozen=True)
class Served:
    """What the hosts of some plans serve together.

    ``ports`` are those of the first plan's replicas that answer by ``scheme``; ``cpus`` are
    cpulists that replicas are bound to, ``environment`` fields of Bench.environment.
    """

    model: str
    tokenizer: str
    version: str
    image: str | None
    container_engine: str
    executable: str
    ports: tuple[int, ...]
    scheme: str
    gpus: int
    hosts: int
    cpus: tuple[str, ...]
    environment: dict[str, Any]


def served_by(plans: Sequence[tuple[Plan, str]]) -> Served:
    """Return what plans, each with the text of its file, say; there must be one at least."""
    first = plans[0][0]
    hashes = {plan.host: hashlib.sha256(text.encode()).hexdigest() for plan, text in plans}
    layouts = {plan.host: name_of(plan.layout) for plan, _text in plans}
    replicas = [(plan, replica) for plan, _text in plans for replica in plan.replicas]
    engine, model = first.deployment.engine, first.deployment.model
    return Served(
        model=model.name,
        tokenizer=model.path,
        version=engine.version,
        image=engine.image if engine.runtime != "native" else None,
        container_engine="podman" if engine.runtime == "quadlet" else "docker",
        executable=engine.executable,
        ports=tuple(
            replica.port for replica in first.replicas if first.node is None or first.node.rank == 0
        ),
        scheme="https" if first.deployment.tls else "http",
        gpus=sum(len(replica.gpus) for _plan, replica in replicas),
        hosts=len(plans),
        cpus=tuple(replica.cpus for _plan, replica in replicas if replica.cpus),
        environment={
            "plan_hash": _common(hashes),
            "layout": _common(layouts),
            "deployment": first.deployment.name,
            "model": model.name,
            "engine": {"name": engine.name, "version": engine.version, "image": engine.image},
            "hosts": [plan.host for plan, _text in plans],
            "gpu": first.gpu_model,
            "topology": _common({plan.host: _topology(plan) for plan, _text in plans}),
        },
    )


def _common(values: dict[str, str]) -> str | dict[str, str]:
    """Return what all hosts have alike, else each host's."""
    return next(iter(values.values())) if len(set(values.values())) == 1 else values


def _topology(plan: Plan) -> str:
    """Return in a line how the replicas lie on the host."""
    places = [
        f"{len(replica.gpus)} GPUs on NUMA {','.join(map(str, replica.memory_nodes)) or '?'}"
        for replica in plan.replicas
    ]
    return "; ".join(places)
