# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of routers' logs → whether one side of an experiment (`router_experiments`) is better.

The unit is a session: requests of one are not independent of each other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from ...documents import knowledge
from ...findings import Finding, error
from .compare import Comparison, Says, Verdict, compare_values
from .statistics import interval

# Of the verdicts on the figures the first of these is the whole one.
_ORDER: tuple[Says, ...] = ("worse", "better", "not decided", "no difference found")


@dataclass
class _Session:
    """Sums of a session's requests: seconds and bytes of those that were answered to the end."""

    requests: int = 0
    answered: int = 0
    seconds: float = 0.0
    size: int = 0
    streams: int = 0
    first: float = 0.0
    server: str = ""


# By side, by the deployment that answered.
_Parts = Mapping[str, dict[str, dict[str, _Session]]]
# The means of a session; None where it has none. The log has whole milliseconds, so that 0 is one.
_FIGURES: dict[str, Callable[[_Session], float | None]] = {
    "e2el, s": lambda one: one.seconds / one.answered if one.answered else None,
    "ttft": lambda one: one.first / one.streams if one.streams else None,
    "answer, B/s": lambda one: one.size / one.seconds if one.seconds else None,
    "answered": lambda one: one.answered / one.requests,
}


def compare_sides(lines: Iterable[str]) -> Comparison:
    """Return the verdicts on side b of the experiment in the lines against side a, by sessions.

    Other lines are passed over, and what a's deployment answered for b's counts nowhere. Raises
    BENCH-SIDES where the lines are of no experiment, or of several.
    """
    parts: _Parts = {side: defaultdict(lambda: defaultdict(_Session)) for side in "ab"}
    numbers = count()
    for line in lines:
        _read(line, parts, numbers)
    fallen = [parts["b"].pop(name) for name in parts["a"] if name in parts["b"]]
    a, b = (" and ".join(sorted(found)) or "empty" for found in parts.values())
    if any(len(found) != 1 for found in parts.values()):
        raise error("BENCH-SIDES", "router log", f"side a is {a}, side b {b}")
    sides = parts["a"] | parts["b"]
    verdicts = tuple(_verdicts(sides[a].values(), sides[b].values()))
    says = {one.verdict for one in verdicts}
    overall = next((each for each in _ORDER if each in says), None)
    instead = sum(one.requests for part in fallen for one in part.values())
    return Comparison(a, b, overall, verdicts, (), tuple(_doubts(sides, instead)))


def _read(line: str, parts: _Parts, numbers: Iterator[int]) -> None:
    """Add a request to its session, if the line is one of an experiment."""
    try:
        # What comes before is syslog's.
        row = json.loads(line[line.index("{") :])
        if row["method"] != "POST":
            return
        part = parts[row["side"]][str(row["deployment"])]
        answered = row["status"] < 400 and row["termination"].startswith("-")
        seconds, size = int(row["ms_total"]) / 1000, int(row["bytes_out"])
        first = row["ms_first_token"]
        waited = int(first) / 1000 if first != "-" else 0.0
        # A request without a session is one of its own.
        named = str(row["session"]) if row["session"] != "-" else f"-{next(numbers)}"
        server = str(row["server"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return
    one = part[named]
    one.requests += 1
    if answered:
        one.server = server
        one.answered += 1
        one.seconds += seconds
        one.size += size
        one.streams += first != "-"
        one.first += waited


def _verdicts(a: Iterable[_Session], b: Iterable[_Session]) -> Iterator[Verdict]:
    """Yield a verdict for each figure; the confidence is shared among them (Bonferroni)."""
    known = knowledge("bench/protocol.yml")["compare"]
    sure = 1 - (1 - known["confidence"]) / len(_FIGURES)
    for what, figure in _FIGURES.items():
        share = what == "answered"
        first, second = (
            [value for one in side if (value := figure(one)) is not None] for side in (a, b)
        )
        ends = [interval(side, sure) if side else None for side in (first, second)]
        found = Verdict(what, "not decided", None, None, confidence=sure)
        if min(len(first), len(second)) >= known["sessions"]:
            # One more of each kind (Agresti and Caffo), so that none that failed is no certainty.
            more, gain = ([0.0, 1.0], 0.0) if share else ([], None)
            values, less = ([*first, *more], [*second, *more]), what in ("e2el, s", "ttft")
            found = compare_values(*values, what, confidence=sure, gain=gain, less_is_better=less)
        yield replace(found, a=ends[0], b=ends[1])


def _doubts(sides: Mapping[str, dict[str, _Session]], instead: int) -> Iterator[Finding]:
    """Yield why less can be concluded than it seems."""
    least = knowledge("bench/protocol.yml")["compare"]["sessions"]
    a, b = sides
    for name, sessions in sides.items():
        if len(sessions) < least:
            message = f"{len(sessions)} sessions, expected {least} or more"
            yield Finding("BENCH-SIDE", name, message)
        if len({one.server for one in sessions.values()} - {""}) == 1:
            yield Finding(
                "BENCH-SIDE", name, "one replica answered: a difference may be its host's"
            )
    if instead:
        message = f"{a} answered {instead} requests for it, which count on no side"
        yield Finding("BENCH-SIDE", b, message)
