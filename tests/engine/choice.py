# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""As few of a release's commands as show everything that all of them show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.cases import Case

# Values that say nothing of vLLM: a model's own name and place.
_OWN = ("--served-model-name",)
_VARIES = re.compile(r"/[^\s\"]+|[0-9.]+")


def telling(
    cases: Sequence[Case], before: Iterable[Case] = (), after: Iterable[Case] = ()
) -> list[Case]:
    """Return cases, in their order, that have every fact of all of them.

    ``before`` and ``after`` are the cases of the neighbouring releases: what the same command gets
    here and not there, or there and not here, is a fact, too.
    """
    others = [("before", _by_id(before)), ("after", _by_id(after))]
    facts = [frozenset(_facts(case, others)) for case in cases]
    missing = set().union(*facts)
    taken: set[int] = set()
    while missing:
        # Of those that show as much the first; one that is built whole takes longest.
        best = max(
            range(len(cases)),
            key=lambda place: (len(facts[place] & missing), not cases[place].memory, -place),
        )
        taken.add(best)
        missing -= facts[best]
    return [cases[place] for place in sorted(taken)]


def shown(case: Case) -> set[str]:
    """Return what a case shows: its kind of model, rules, backend, flags with values, variables."""
    result = {f"model {case.kind}", f"backend {case.backend}"}
    result |= {f"rule {rule} at {stage}" for rule, stage in case.refused}
    result |= {f"{name}={value}" for name, value in case.env.items()}
    for flag, value in zip(case.argv, (*case.argv[1:], ""), strict=True):
        if flag.startswith("--"):
            varies = flag in _OWN or value.startswith("--")
            result.add(flag if varies else f"{flag} {_VARIES.sub('#', value)}")
    return result | ({"memory"} if case.memory else set())


def _by_id(cases: Iterable[Case]) -> dict[str, Case]:
    return {case.id: case for case in cases}


def _facts(case: Case, others: Sequence[tuple[str, Mapping[str, Case]]]) -> Iterator[str]:
    here = shown(case)
    yield from here
    for place, cases in others:
        if other := cases.get(case.id):
            there = shown(other)
            yield from (f"not {place}: {fact}" for fact in here - there)
            yield from (f"only {place}: {fact}" for fact in there - here)
            for part, size in (case.memory or {}).items():
                if other.memory and other.memory[part] != size:
                    yield f"not {place}: {part} of {case.kind}"
