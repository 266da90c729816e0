# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan in a person's words: which GPUs each replica got and why, and how two plans differ."""

from __future__ import annotations

import difflib
import fnmatch
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..documents import dumps, knowledge
from ..engine.types import Reason, Recipe
from ..placement.types import Placement
from .types import Plan, Replica, name_of

GIB = 2**30


def cost_words(fields: Sequence[str], cost: Sequence[int]) -> str:
    """Return a cost in words, leaving out what is zero."""
    named = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in zip(fields, cost, strict=True)
        if value
    ]
    return ", ".join(named) or "nothing"


def why_these(placement: Placement) -> list[str]:
    """Return what a cut costs and why the next best was not taken."""
    exact = "no cut as requested costs less" if placement.exact else "not proven to be the least"
    words = cost_words(placement.cost_fields, placement.cost)
    lines = [f"cost of the cut: {words} ({exact})"]
    if placement.runner_up is not None:
        sets = " | ".join(" ".join(keys) for keys in placement.runner_up.replicas)
        lines.append(f"runner-up: {sets}: {placement.runner_up.reason}")
    return lines


def summary(plan: Plan) -> list[str]:
    """Return the plan in a few lines: what an operator wants to see after a run."""
    deployment, layout = plan.deployment, plan.layout
    lines = [
        f"{plan.host}: {deployment.model.name},"
        f" {name_of(layout)},"
        f" {deployment.engine.name} {deployment.engine.version}"
    ]
    if plan.node is not None:
        serves = "serves HTTP" if plan.node.rank == 0 else "has workers alone"
        lines.append(
            f"  rank {plan.node.rank} of {' '.join(plan.node.hosts)}: {serves};"
            f" they meet at {plan.node.master_address}"
        )
    lines += [f"  {replica_line(replica)}" for replica in plan.replicas]
    lines += [
        f"  {line}" for line in (*why_these(plan.placement), *_why_layout(plan), *_memory(plan))
    ]
    lines += [f"  {finding}" for finding in plan.findings if finding.severity != "info"]
    return lines


def _why_layout(plan: Plan) -> Iterator[str]:
    """Say how an open layout was chosen, and that measuring decides."""
    choice = plan.layouts
    if choice is None:
        return
    verdicts = [layout.verdict for layout in choice.considered]
    yield (
        f"layout: preferred for {choice.preference} ({choice.because}), not measured:"
        f" {choice.considered[0].reason}; {verdicts.count('possible')} others are possible,"
        f" {verdicts.count('dropped')} are not"
    )


def _memory(plan: Plan) -> Iterator[str]:
    """Say what each size of engine takes up and holds."""
    memory, tokens = plan.memory, {}
    for replica in plan.replicas:
        tokens[len(replica.gpus)] = replica.kv_tokens
    if memory.weights_bytes_per_gpu is None or None in tokens.values():
        return
    if len(tokens) == 1:
        yield (
            f"memory per GPU: weights {memory.weights_bytes_per_gpu / GIB:.1f} GiB; "
            f"KV room for {memory.kv_tokens_per_engine:,} tokens a replica"
        )
        return
    rooms = ", ".join(f"{count:,} tokens in TP{size}" for size, count in tokens.items())
    yield f"KV room for {rooms}"


def replica_line(replica: Replica) -> str:
    """Return where one replica runs."""
    nodes = ",".join(map(str, replica.memory_nodes)) or "any"
    internal = f" (internal {replica.internal_port} on)" if replica.internal_port else ""
    return (
        f"{replica.unit} port {replica.port}{internal}: GPUs {' '.join(replica.gpus)}, "
        f"CPUs {replica.cpus or 'any'}, memory node {nodes}"
    )


@dataclass(frozen=True)
class Explained:
    """One element of the replicas' commands: its name, its text by replica, its reason."""

    name: str
    texts: tuple[str, ...]
    replicas: tuple[int, ...]
    reason: Reason


def explained(plan: Plan) -> tuple[Explained, ...]:
    """Return each element with every text that replicas have of it, in the order of the command."""
    rows: dict[tuple[str, str], list[tuple[int, str, Reason]]] = {}
    for index, replica in enumerate(plan.replicas):
        texts = _texts(replica)
        for reason in replica.reasons:
            text = texts.get(reason.element, reason.element)
            rows.setdefault((reason.element, reason.rule), []).append((index, text, reason))
        if replica.attention_backend is not None and replica.attention_reason is not None:
            text = f"(attention backend) {replica.attention_backend}"
            key = ("(attention backend)", replica.attention_reason.rule)
            rows.setdefault(key, []).append((index, text, replica.attention_reason))
    return tuple(
        Explained(
            name,
            tuple(text for _index, text, _reason in entries),
            tuple(index for index, _text, _reason in entries),
            entries[0][2],
        )
        for (name, _rule), entries in rows.items()
    )


def _texts(replica: Replica) -> dict[str, str]:
    """Return each element of a command with its value, by name."""
    texts: dict[str, str] = {name: f"{name}={value}" for name, value in replica.env.items()}
    texts["model"] = replica.argv[2]
    flag = ""
    for word in replica.argv[3:]:
        if word.startswith("--"):
            flag = word.partition("=")[0]
            texts[flag] = f"{texts[flag]} {word}" if flag in texts else word
        elif flag:
            texts[flag] = f"{texts[flag]} {word}"
    return texts


def grouped(rows: Sequence[Explained]) -> Iterator[tuple[str, str, list[Explained]]]:
    """Yield the groups that have rows: title, what they are about, the rows."""
    groups: Sequence[Mapping[str, Any]] = knowledge("explain.yml")["groups"]
    members: dict[str, list[Explained]] = {group["title"]: [] for group in groups}
    for row in rows:
        (title, *_others) = (group["title"] for group in groups if _fits(row, group["fits"]))
        members[title].append(row)
    for group in groups:
        if members[group["title"]]:
            yield group["title"], group["about"], members[group["title"]]


def _fits(row: Explained, patterns: Sequence[str]) -> bool:
    names = (row.name, row.reason.rule)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def shown(texts: Sequence[str], most: int = 4) -> str:
    """Return texts that differ by replica as one: `--port {8000|8001}`."""
    different = list(dict.fromkeys(texts))
    if len(different) == 1:
        return different[0]
    start = _common(different)
    end = _common([text[start:][::-1] for text in different])
    middle = [text[start : len(text) - end] for text in different]
    if len(middle) > most:
        middle = [*middle[: most - 1], "…", middle[-1]]
    tail = different[0][len(different[0]) - end :] if end else ""
    return f"{different[0][:start]}{{{'|'.join(middle)}}}{tail}"


def _common(texts: Sequence[str]) -> int:
    """Return how many first characters texts share, up to the end of a name or number."""
    shortest = min(texts, key=len)
    count = 0
    while count < len(shortest) and len({text[count] for text in texts}) == 1:
        count += 1
    while count and shortest[count - 1] not in " =/-,":
        count -= 1
    return count


def command_lines(recipe: Recipe) -> list[str]:
    """Return a recipe as the shell command that it is, an element a line."""
    lines = [f"{name}={shlex.quote(value)}" for name, value in recipe.env.items()]
    lines.append(shlex.join(("vllm", *recipe.argv[:2])))
    flags = [""]
    for word in recipe.argv[2:]:
        if word.startswith("--"):
            flags.append(f"  {word}")
        else:
            flags[-1] += f" {shlex.quote(word)}"
    return [f"{line} \\" for line in (*lines, *flags[1:-1])] + flags[-1:]


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
