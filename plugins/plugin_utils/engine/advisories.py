# SPDX-License-Identifier: GPL-3.0-or-later

"""Known defects as data (knowledge/vllm/advisories/): rules of releases, with what threads prove.

An advisory is a rule that holds for releases as they are named, known to Apiary or not; its effect
follows from its symptom and from what its source proves (advisories.yml).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..deployment import Limits
from ..documents import knowledge
from ..findings import Finding
from ..gpus import gpu_facts
from ..model.types import Architecture
from .conditions import Condition, Fact, parse, read_span
from .facts import model_facts, pins_of
from .flags import resolve_version
from .rules import Rule

# Facts of the engine's environment: what they alone leave open is said with an "if".
_ENVIRONMENT = {"aiter": "AITER", "rocm": "ROCm"}


@dataclass(frozen=True)
class Advisory(Rule):
    """One defect; advisories.yml explains the members.

    ``avoid`` is the element that a plan sets against it, ``log`` a piece of the engine's log that
    shows the defect.
    """

    symptom: str = ""
    says: str = ""
    proof: str = ""
    read: str = ""
    fixed: str = ""
    avoid: Mapping[str, str] | None = None
    log: str | None = None

    @property
    def remedy(self) -> str:
        """Return what to do."""
        return self.effect["remedy"]

    def covers(self, facts: Mapping[str, Fact]) -> bool:
        """Say whether the release is one of those that have the defect."""
        return self.versions.covers(str(facts["release"]))

    def supposed(self, facts: Mapping[str, Fact]) -> tuple[Finding, ...]:
        """Return what to say where nothing but the version of AITER or ROCm leaves it open."""
        names = set(self.when.unknown(facts))
        if self.kind == "note" or not names or not names <= set(_ENVIRONMENT):
            return ()
        words = self.when.open(facts).words()
        for name, shown in _ENVIRONMENT.items():
            words = words.replace(f"{name} is", f"{shown} is")
        certain = self.finding(facts)
        fields = " and ".join(f"engine.{name}" for name in sorted(names))
        finding = Finding(
            "ENGINE-ADVISORY-IF",
            certain.subject,
            f"if {words}: {certain.message}",
            source=self.source,
        )
        return (finding.reworded(remedy=f"{certain.remedy}; {fields} in the deployment decides"),)

    def possible(self, facts: Mapping[str, Fact]) -> str | None:
        """Return on what it hangs, in words, where no more than these facts is known.

        Empty where it applies whatever else is so, None where it cannot.
        """
        known = {**dict.fromkeys(self.when.facts()), **facts}
        return None if self.holds(known) is False else self.when.open(known).words()


@functools.cache
def advisories() -> tuple[Advisory, ...]:
    """Return all advisories, the gravest symptoms first; ValueError for one that makes no sense."""
    data = knowledge("vllm/advisories.yml")
    order = list(data["symptoms"])
    result = [
        _advisory(entry, data)
        for name in data["files"]
        for entry in knowledge(f"vllm/advisories/{name}.yml")["advisories"]
    ]
    return tuple(sorted(result, key=lambda advisory: order.index(advisory.symptom)))


def release_facts(
    release: str, gpu: str, architecture: Architecture | None = None
) -> dict[str, Fact]:
    """Return what is known of a release on a GPU, with upstream's image, before any deployment.

    Raises ApiaryError for what is no release.
    """
    version = resolve_version(release, subject="--engine").version
    model = {} if architecture is None else model_facts(architecture, version)
    return {**model, **pins_of(release), "release": release, "gpu": gpu, "gfx": gpu_facts(gpu).gfx}


def advisory(name: str) -> Advisory | None:
    """Return the advisory of an id, or None."""
    return next((each for each in advisories() if each.id == name), None)


def _advisory(entry: Mapping[str, Any], data: Mapping[str, Any]) -> Advisory:
    try:
        symptom, proof = data["symptoms"][entry["symptom"]], data["proofs"][entry["proof"]]
        effect = symptom["proven" if proof["proven"] else "reported"]
        fixed = entry.get("fixed", "")
        when = parse(entry.get("when", {}))
        return Advisory(
            id=entry["id"],
            kind=effect["kind"],
            effect={
                "code": effect["code"],
                "field": _field(when),
                "message": f"{symptom['is']}: {entry['says']}",
                "remedy": entry["do"],
            },
            versions=read_span(entry.get("versions")),
            when=when,
            reason=f"{proof['is']}{f', mended in {fixed}' if fixed else ''}",
            source=entry["source"],
            stages=(("0", None),) if effect["kind"] == "refuse" else (),
            fixed=fixed,
            avoid=entry.get("avoid"),
            log=entry.get("log"),
            **{name: entry[name] for name in ("symptom", "says", "proof", "read")},
        )
    except (KeyError, ValueError) as wrong:
        raise ValueError(f"advisory {entry.get('id')}: {wrong}") from wrong


def _field(when: Condition) -> str:
    """Return the field of the first element or limit that the condition asks about."""
    for name in when.facts():
        group, _space, element = name.partition(" ")
        if group == "env":
            return f"engine.env.{element}"
        if group == "flag":
            return f"engine.args.{element.replace('_', '-')}"
        if name in Limits.__dataclass_fields__:
            return f"limits.{name}"
    return "engine.version"
