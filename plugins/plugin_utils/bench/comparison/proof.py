# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps valid numbers from being published: rules nobody could check, rules replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...findings import Finding
from ..search import searches
from ..types import Bench, Level

# A level that carries one of these kept every rule that could be looked at, and not all could.
_UNSEEN = {
    "BENCH-UNCHECKED": "whether prompts repeat is not known",
    "BENCH-UNTESTED": "what the client adds is not known",
}


def counts(level: Level) -> bool:
    """Return whether a level is a result: valid, and no warm-up."""
    return level.valid and level.load.phase != "warmup"


def unproven(benches: Iterable[Bench]) -> tuple[str, ...]:
    """Return each reason why numbers may not be published, though their levels are valid."""
    reasons: dict[str, None] = {}
    for bench in benches:
        levels = [level for level in bench.levels if counts(level)]
        for code, what in _UNSEEN.items():
            hit = sum(any(one.code == code for one in level.findings) for level in levels)
            if hit:
                reasons[f"{what} ({hit} of {len(levels)} levels, {code})"] = None
        replaced = rules_text(bench.environment.get("rules"))
        if replaced:
            reasons[f"the protocol's numbers were replaced: {replaced}"] = None
    return tuple(reasons)


def rules_text(replaced: object) -> str:
    """Return replaced rules as NAME=NUMBER, empty where there are none."""
    if not isinstance(replaced, Mapping):
        return ""
    return ", ".join(f"{name}={value}" for name, value in sorted(replaced.items()))


def doubt(subject: str, reasons: Sequence[str]) -> tuple[Finding, ...]:
    """Return the warning that goes with numbers that are not proven; empty where they are."""
    if not reasons:
        return ()
    return (Finding("BENCH-UNPROVEN", subject, f"is not to be published: {'; '.join(reasons)}"),)


def unanswered(bench: Bench) -> tuple[Finding, ...]:
    """Return why a benchmark does not answer what it was asked; empty where it does."""
    levels = [level for level in bench.levels if level.load.phase != "warmup"]
    why = f"none of its {len(levels)} levels counts"
    if any(map(counts, levels)):
        searched = bool(bench.requested.slo) and "slo" in bench.requested.phases
        ended = {search.by for search in bench.searches}
        open_ends = [by for by in searches(bench.requested) if by not in ended]
        if not searched or not open_ends:
            return ()
        kinds = " and ".join(by.replace("_", " ") for by in open_ends)
        why = f"its search for the SLO's limit by {kinds} did not end"
    return (Finding("BENCH-NO-ANSWER", bench.name, why),)
