# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan in a person's words: which GPUs each replica got and why, and how two plans differ."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, Replica

GIB = 2**30


def layout_name(plan: Plan) -> str:
    """Return the layout as people write it: DP2/TP4/EP4."""
    layout = plan.layout
    parts = [f"DP{layout.replicas}", f"TP{layout.tensor_parallel_size}"]
    if layout.expert_parallel:
        parts.append(f"EP{layout.tensor_parallel_size}")
    return "/".join(parts)


def cost_words(fields: Sequence[str], cost: Sequence[int]) -> str:
    """Return a cost in words, leaving out what is zero."""
    named = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in zip(fields, cost, strict=True)
        if value
    ]
    return ", ".join(named) or "nothing"


def why_these(plan: Plan) -> list[str]:
    """Say what the cut costs and why the next best was not taken."""
    placement = plan.placement
    exact = "the least of all cuts" if placement.exact else "not proven to be the least"
    words = cost_words(placement.cost_fields, placement.cost)
    lines = [f"cost of the cut: {words} ({exact})"]
    if placement.runner_up is not None:
        sets = " | ".join(" ".join(keys) for keys in placement.runner_up.replicas)
        lines.append(f"runner-up: {sets}: {placement.runner_up.reason}")
    return lines


def summary(plan: Plan) -> list[str]:
    """Return the plan in a few lines: what an operator wants to see after a run."""
    deployment, memory = plan.deployment, plan.memory
    lines = [
        f"{plan.host}: {deployment.model.name}, {layout_name(plan)}, "
        f"{deployment.engine.name} {deployment.engine.version}"
    ]
    lines += [f"  {replica_line(replica)}" for replica in plan.replicas]
    lines += [f"  {line}" for line in why_these(plan)]
    if memory.weights_bytes_per_gpu is not None and memory.kv_tokens_per_engine is not None:
        lines.append(
            f"  memory per GPU: weights {memory.weights_bytes_per_gpu / GIB:.1f} GiB; "
            f"KV room for {memory.kv_tokens_per_engine:,} tokens a replica"
        )
    lines += [f"  {finding}" for finding in plan.findings if finding.severity != "info"]
    return lines


def replica_line(replica: Replica) -> str:
    """Return where one replica runs."""
    nodes = ",".join(map(str, replica.memory_nodes)) or "any"
    return (
        f"{replica.unit} port {replica.port}: GPUs {' '.join(replica.gpus)}, "
        f"CPUs {replica.cpus or 'any'}, memory node {nodes}"
    )


def elements(replica: Replica) -> list[tuple[str, str, str, str]]:
    """Return (element with value, rule, reason, source) for all of a replica's command."""
    values: dict[str, str] = {name: f"{name}={value}" for name, value in replica.env.items()}
    flag = ""
    for word in replica.argv:
        if word.startswith("--"):
            flag = word.partition("=")[0]
            values[flag] = word
        elif flag:
            values[flag] = f"{values[flag]} {word}"
    return [
        (values.get(item.element, item.element), item.rule, item.reason, item.source)
        for item in replica.reasons
    ]


def diff_plans(before: Plan, after: Plan) -> Sequence[str]:
    """Return a unified diff of two plans; empty where they are the same."""
    return list(
        difflib.unified_diff(
            dumps(before).splitlines(),
            dumps(after).splitlines(),
            f"{before.host} before",
            f"{after.host} after",
            lineterm="",
        )
    )
