# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM did, held against what Apiary says: agreement, or who is wrong about what."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import (
    literals,
    resolve_version,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_facts

from engine.cases import Case

# In this order vLLM comes to them; what is refused earlier never gets further.
STAGES = ("parser", "config", "backend", "load")
AGREEMENT = 0.01  # of Apiary's bytes with those of vLLM's tensors
FAR = 0.05
# What memory is summed up by: the parts that inside/memory.py tells.
PARTS = {
    "weights": ("weights",),
    "KV cache": ("full", "sliding", "linear"),
}
COLUMNS = (
    "vLLM",
    "fed",
    "accepted",
    "rejected as predicted",
    "refused, not seen here",
    "backend agreed",
    "backend not predicted",
    "disagreements",
    "seconds",
)


@dataclass(frozen=True)
class Verdict:
    """What came of one case; ``problem`` is None where vLLM and Apiary agree.

    ``outcome`` is one of accepted, predicted (rejected where a rule says it is), unseen (a rule
    names a later stage than this judge sees, or none), wrong and broken.
    """

    case: Case
    outcome: str
    problem: str | None = None
    backend: str = ""  # agreed, unpredicted, or nothing


def verdict(case: Case, opinion: Mapping[str, Any]) -> Verdict:
    """Hold one opinion of vLLM against what Apiary says of the case."""
    if "broken" in opinion:
        return Verdict(case, "broken", f"the judge cannot say: {opinion['broken']}")
    stage = opinion["stage"]
    accepted = stage == "accepted"
    rules = ", ".join(sorted({rule for rule, _ in case.refused}))
    stages = [named for _, named in case.refused if named in STAGES]
    if not accepted:
        return _rejected(case, opinion, stages, rules)
    certain = [named for named in stages if named != "load"]
    if certain:
        return Verdict(
            case, "wrong", f"{rules} says vLLM refuses it ({certain[0]}), and it does not"
        )
    if case.refused:
        return Verdict(case, "unseen")
    if opinion["unknown_env"]:
        names = ", ".join(opinion["unknown_env"])
        return Verdict(case, "wrong", f"this version does not know {names}")
    if case.memory is not None and (wrong := _wrong_memory(case.memory, opinion["memory"])):
        return Verdict(case, "wrong", wrong)
    backends = ", ".join(opinion["backends"])
    if case.backend is None:
        return Verdict(case, "accepted", backend="unpredicted" if backends else "")
    if backends == case.backend:
        return Verdict(case, "accepted", backend="agreed")
    problem = f"the recipe says attention runs on {case.backend}, vLLM chooses {backends or 'none'}"
    return Verdict(case, "wrong", problem)


def _wrong_memory(
    apiary: Mapping[str, float | None], vllm: Mapping[str, float | None]
) -> str | None:
    """Return what Apiary counts otherwise than vLLM's tensors by more than 1 %, all in one line."""
    wrong = [
        f"{part} {size:.0f} B a GPU by Apiary, {own:.0f} by vLLM's tensors"
        for part, size in apiary.items()
        if size is not None and (own := vllm[part]) is not None
        if _apart(size, own) > AGREEMENT
    ]
    return "; ".join(wrong) or None


def _rejected(case: Case, opinion: Mapping[str, Any], stages: Sequence[str], rules: str) -> Verdict:
    stage = opinion["stage"]
    said = f"{opinion['error']} (at {opinion['at'][-1] if opinion['at'] else '?'})"
    if not case.refused:
        return Verdict(case, "wrong", f"no rule refuses it, and vLLM does ({stage}): {said}")
    if any(STAGES.index(stage) <= STAGES.index(named) for named in stages):
        return Verdict(case, "predicted")
    if stages:
        named = max(stages, key=STAGES.index)
        return Verdict(
            case, "wrong", f"{rules} names {named}, vLLM refuses it later ({stage}): {said}"
        )
    return Verdict(case, "wrong", f"{rules} says vLLM takes it, and it does not ({stage}): {said}")


def record(one: Verdict, opinion: Mapping[str, Any]) -> dict[str, Any]:
    """Return all there is to say of a case, for a report."""
    case = one.case
    return {
        "case": case.id,
        "outcome": one.outcome,
        "problem": one.problem,
        "refused": case.refused,
        "backend": case.backend,
        "memory": dict(case.memory) if case.memory else None,
        "env": dict(case.env),
        "argv": case.argv,
        "opinion": opinion,
    }


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """Return, in a line, how vLLM takes what nothing refuses, and how memory agrees."""
    planned = [one for one in records if not one["refused"]]
    accepted = sum(one["opinion"].get("stage") == "accepted" for one in planned)
    lines = [f"recipes that no rule refuses: {len(planned)}, {accepted} accepted"]
    wholes = [one for one in planned if one["memory"] and one["opinion"].get("memory")]
    for title, parts in PARTS.items():
        apart = []
        for one in wholes:
            pairs = [(one["memory"].get(part), one["opinion"]["memory"][part]) for part in parts]
            unknown = any(None in pair for pair in pairs)
            apart.append(None if unknown else max(_apart(*pair) for pair in pairs))
        known = [each for each in apart if each is not None]
        near = sum(each <= AGREEMENT for each in known)
        far = sum(each >= FAR for each in known)
        lines.append(
            f"{title} of {len(wholes)} whole models: {near} within 1 %, {len(known) - near - far}"
            f" off by less than 5 %, {far} by more, {len(apart) - len(known)} unknown"
        )
    return "; ".join(lines)


def _apart(one: float, other: float) -> float:
    return abs(one - other) / max(one, other, 1)


def canary_problem(verdicts: Iterable[Verdict]) -> str | None:
    """Say what shows that the judge lets everything pass: a canary with which it agrees."""
    passed = [verdict.case.id for verdict in verdicts if verdict.outcome != "wrong"]
    return f"the judge does not see a wrong case: {'; '.join(passed)}" if passed else None


def unfed(version: str, verdicts: Iterable[Verdict], gpu: str = "MI325X") -> list[str]:
    """Return the rules that say vLLM of this version refuses something, and refused no case.

    Not those that hold for no such GPU.
    """
    node = {"gfx": gpu_facts(gpu).gfx}
    met = {rule for one in verdicts for rule, _ in one.case.refused}
    enforced = {
        rule.id
        for rule in rules()
        if rule.kind == "refuse" and rule.versions.covers(version) and rule.stage(version) in STAGES
        if rule.when.holds(node) is not False
    }
    # Where a release knows every class that Apiary does, none is too new for it.
    classes = set(knowledge("vllm/models.yml")["classes"].values())
    release = resolve_version(version, None).version
    unmeetable = set() if classes - {*literals(release, "MODEL_CLASSES")} else {"VLLM-MODEL-CLASS"}
    return sorted(enforced - met - unmeetable)


def foreign(version: str, opinion: Mapping[str, Any]) -> list[str]:
    """Say what Apiary and vLLM say otherwise of: the classes that a release has for other GPUs."""
    if "broken" in opinion:
        return [f"vLLM {version}: the judge cannot say which classes it has: {opinion['broken']}"]
    refused = {
        name
        for name in literals(resolve_version(version, None).version, "MODEL_CLASSES")
        for rule in rules()
        if rule.kind == "refuse" and rule.versions.covers(version)
        if rule.when.holds({"model_class": name}) is True
    }
    own = opinion["classes"]
    problems = [f"no rule refuses {name}: {own[name]}" for name in sorted({*own} - refused)]
    problems += [f"a rule refuses {name}, and it can be had" for name in sorted(refused - {*own})]
    return [f"vLLM {version}: {problem}" for problem in problems]


def row(version: str, verdicts: Sequence[Verdict], seconds: float) -> tuple[str, ...]:
    """Return a version's line of the table."""
    outcomes = [verdict.outcome for verdict in verdicts]
    backends = [verdict.backend for verdict in verdicts]
    numbers = (
        len(verdicts),
        outcomes.count("accepted"),
        outcomes.count("predicted"),
        outcomes.count("unseen"),
        backends.count("agreed"),
        backends.count("unpredicted"),
        outcomes.count("wrong") + outcomes.count("broken"),
        round(seconds),
    )
    return (version, *map(str, numbers))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows under their headings, numbers to the right."""
    lines = [COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )


def disagreements(version: str, verdicts: Iterable[Verdict]) -> list[str]:
    """Return each kind of disagreement once, with its first case's command and how many more."""
    kinds: dict[str, list[Verdict]] = {}
    for one in verdicts:
        if one.problem is not None:
            kinds.setdefault(_kind(one.problem), []).append(one)
    texts = []
    for same in sorted(kinds.values(), key=len, reverse=True):
        case = same[0].case
        env = [f"{name}={value}" for name, value in sorted(case.env.items())]
        others = [one.case.id for one in same[1:]]
        text = f"vLLM {version}: {same[0].problem}\n  {case.id}"
        text += f"; {len(others)} more: {'; '.join(others[:4])}" if others else ""
        texts.append(f"{text}\n  {shlex.join([*env, 'vllm', *case.argv])}")
    return texts


def _kind(problem: str) -> str:
    """Return a problem without what differs between cases of one kind."""
    return re.sub(r"/\S+|\d+", "#", problem)[:160]
