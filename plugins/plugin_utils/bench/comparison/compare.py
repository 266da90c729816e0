# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether one configuration is better than another; "no difference found" is an answer too.

The unit of evidence is one engine run: repeats within an engine run share its luck, so they are
averaged first. ``a`` is what ``b`` is held against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from ...documents import knowledge
from ...findings import Finding, error
from ...slo import Limit
from ..ledger import By, Figure, by_size, mean_rate, rate_of
from ..search import searched_by, searches, slo_rates
from ..types import Bench, Interval, Level
from .sameness import (
    Difference,
    by_engine_run,
    conditions,
    differences,
    listed,
    merged,
    one_configuration,
    one_question,
    question,
)
from .statistics import interval, mean, ratio_interval, t_quantile, welch

Says = Literal["better", "worse", "no difference found", "not decided"]
_BYS: tuple[By, ...] = ("concurrency", "request_rate")


@dataclass(frozen=True)
class Verdict:
    """What can be said of ``b`` against ``a`` in one figure, by engine runs.

    ``ratio`` is b / a with its interval. ``detectable`` is the smallest relative difference that
    these runs would most likely have shown. ``differs`` is what else is not alike on both sides.
    """

    what: str
    verdict: Says
    a: Interval | None
    b: Interval | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None
    confidence: float = 0.95
    published: bool = False
    differs: tuple[Difference, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What is known of ``b`` against ``a``; the first verdict is the one that counts.

    ``verdict`` is None where nothing could be compared; ``differs`` says why. ``costs`` are the
    verdicts on what each takes at the SLO.
    """

    SCHEMA: ClassVar[str] = "apiary.comparison/v1"

    a: str
    b: str
    verdict: Says | None
    verdicts: tuple[Verdict, ...]
    differs: tuple[Difference, ...]
    findings: tuple[Finding, ...]
    costs: tuple[Verdict, ...] = ()


def compare_values(
    a: Sequence[float],
    b: Sequence[float],
    what: str = "request rate",
    *,
    confidence: float | None = None,
    resolution: float = 0.0,
    gain: float | None = None,
    less_is_better: bool = False,
) -> Verdict:
    """Return the verdict on figures of one engine run each.

    It is `better` or `worse` only where the interval of the ratio excludes 1 and the difference is
    larger than the ``gain`` that equal systems differ by, and than the ``resolution`` of the search
    that gave the figures. One run on a side has no interval, so nothing is tested: `not decided`.
    """
    known = knowledge("bench/protocol.yml")["compare"]
    level = confidence or known["confidence"]
    least = max(known["gain"] if gain is None else gain, resolution)
    engine_runs = min(len(a), len(b))
    published = engine_runs >= known["engine_runs"]
    reported = () if published else (_few(what, engine_runs, known["engine_runs"]),)
    verdict = Verdict(
        what,
        "no difference found",
        interval(a, level),
        interval(b, level),
        confidence=level,
        published=published,
        findings=reported,
    )
    if engine_runs < 2:
        base = mean(a)
        ratio_of_one = mean(b) / base if base else None
        return replace(verdict, verdict="not decided", ratio=ratio_of_one)
    ratio = ratio_interval(a, b, level)
    power = t_quantile((1 + level) / 2, ratio.df) + t_quantile(known["power"], ratio.df)
    shows = math.expm1(power * ratio.error)
    if ratio.low > 1 and ratio.ratio > 1 + least:
        says: Says = "worse" if less_is_better else "better"
    elif ratio.high < 1 and ratio.ratio < 1 / (1 + least):
        says = "better" if less_is_better else "worse"
    else:
        says = "no difference found"
    return replace(
        verdict,
        verdict=says,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        p=welch(a, b),
        detectable=max(shows, least),
    )


def compare(a: Sequence[Bench], b: Sequence[Bench], *, confidence: float | None = None) -> Verdict:
    """Return the verdict on two configurations: at the SLO where both were searched for it, else
    at the highest load that both were measured at.

    Each side is one configuration, in as many benchmarks and runs as there are. Raises
    BENCH-QUESTION, BENCH-MIXED or BENCH-NOTHING-COMMON.
    """
    _comparable(a, b)
    unlike = differences(conditions(a[0]), conditions(b[0]))
    searched = searched_by((*a, *b))
    verdict = _at_slo(a, b, searched[0], confidence) if searched else _at_highest(a, b, confidence)
    notes = list(verdict.findings)
    doubts = [doubt(side[0].name, unproven(side)) for side in (a, b)]
    notes += dict.fromkeys(note for side in doubts for note in side)
    verdict = replace(verdict, published=verdict.published and not any(doubts))
    return replace(verdict, differs=unlike, findings=tuple(notes))


def by_level(a: Sequence[Bench], b: Sequence[Bench]) -> tuple[Verdict, ...]:
    """Return a verdict for each load that both were measured at, and each figure of the SLO there.

    The confidence is shared among them (Bonferroni), so that many levels find no chance difference.
    """
    _comparable(a, b)
    # The first search's verdict is the whole one; that of a second one is a row.
    others = searched_by((*a, *b))[1:]
    rows: list[tuple[str, Sequence[float], Sequence[float], bool]] = []
    for by in _BYS:
        for size in _common(a, b, by):
            figures: dict[str, Figure] = {"request rate": rate_of} if by == "concurrency" else {}
            for limit in a[0].requested.slo:
                figures[f"{limit.metric} {limit.percentile}"] = partial(_of_limit, limit)
            for name, figure in figures.items():
                first, second = (_engine_runs(side, by, size, figure) for side in (a, b))
                # A ratio needs figures above zero; a mock may answer within its clock's step.
                if first and second and min(*first, *second) > 0:
                    rows.append((_at(name, by, size), first, second, figure is not rate_of))
    alpha = 1 - knowledge("bench/protocol.yml")["compare"]["confidence"]
    sure = 1 - alpha / max(1, len(rows) + len(others))
    return (
        *(_at_slo(a, b, by, sure) for by in others),
        *(
            compare_values(first, second, what, confidence=sure, less_is_better=less)
            for what, first, second, less in rows
        ),
    )


def comparison(a: Sequence[Bench], b: Sequence[Bench]) -> Comparison:
    """Return the verdict on two configurations, and those on each load that both have."""
    whole = compare(a, b)
    verdicts = (whole, *by_level(a, b))
    return Comparison(a[0].name, b[0].name, whole.verdict, verdicts, whole.differs, whole.findings)


def regression(earlier: Sequence[Bench], now: Sequence[Bench]) -> Comparison:
    """Return whether ``now`` is slower or faster than ``earlier`` results of the very same thing.

    Earlier results of another question or under other conditions are listed, never compared.
    """
    one_configuration(now)
    alike, unlike = [], []
    for bench in earlier:
        other = _different(bench, now[0])
        if other:
            unlike.append((bench, other))
        else:
            alike.append(bench)
    notes = [
        Finding(
            "BENCH-DIFFERS",
            bench.name,
            f"measured under other conditions, so it is not compared: {listed(other)}",
        )
        for bench, other in unlike
    ]
    differs = tuple(dict.fromkeys(item for bench, other in unlike for item in other))
    if not alike:
        return Comparison(earlier[0].name, now[0].name, None, (), differs, tuple(notes))
    whole = comparison(alike, now)
    says = {verdict.verdict for verdict in whole.verdicts}
    order: tuple[Says, ...] = ("worse", "better")
    overall = next((each for each in order if each in says), whole.verdict)
    notes += whole.findings
    return replace(
        whole, a=earlier[0].name, verdict=overall, differs=differs, findings=tuple(notes)
    )


def _different(bench: Bench, other: Bench) -> tuple[Difference, ...]:
    from_question = differences(question(bench), question(other))
    return (*from_question, *differences(conditions(bench), conditions(other)))


def _comparable(a: Sequence[Bench], b: Sequence[Bench]) -> None:
    one_configuration(a)
    one_configuration(b)
    one_question((a[0], b[0]))


def _at_slo(a: Sequence[Bench], b: Sequence[Bench], by: By, confidence: float | None) -> Verdict:
    """Return the verdict on the rates at the limits, each run's at the edge that it found."""
    what = f"request rate at the SLO of {a[0].requested.workload.name}"
    what += ", random arrivals" if by == "request_rate" else ""
    first, second = slo_rates(a, by), slo_rates(b, by)
    if first and second:
        width = search_width((*a, *b), by)
        return compare_values(first, second, what, confidence=confidence, resolution=width)
    none = Finding(
        "BENCH-SLO-NEVER",
        what,
        ("neither side keeps" if not first and not second else "one side does not keep")
        + f" the limits at any {by.replace('_', ' ')}",
    )
    says: Says = "no difference found"
    if first or second:
        says = "better" if second else "worse"
    ends = [interval(rates) if rates else None for rates in (first, second)]
    return Verdict(what, says, ends[0], ends[1], findings=(none,))


def search_width(benches: Iterable[Bench], by: By) -> float:
    """Return how far apart, as a share, the loads are between which a search left the edge."""
    found = [item for bench in benches for item in bench.searches if item.by == by]
    widths = [item.fails / item.best - 1 for item in found if item.best and item.fails is not None]
    return max(widths, default=0.0)


def _at_highest(a: Sequence[Bench], b: Sequence[Bench], confidence: float | None) -> Verdict:
    """Return the verdict at the highest common load, closed loops first: by the rate, which an open
    loop prescribes, so there by the time a request takes."""
    loads = {by: sizes for by in _BYS if (sizes := _common(a, b, by))}
    if not loads:
        raise error(
            "BENCH-NOTHING-COMMON",
            f"{a[0].name}, {b[0].name}",
            "no load was measured on both sides with a valid level",
        )
    by, sizes = next(iter(loads.items()))
    closed, size = by == "concurrency", max(sizes)
    figure = rate_of if closed else partial(_of_limit, Limit("e2el", "p90", 0.0))
    first, second = (_engine_runs(side, by, size, figure) for side in (a, b))
    what = _at("request rate" if closed else "e2el p90", by, size)
    return compare_values(first, second, what, confidence=confidence, less_is_better=not closed)


def _common(a: Sequence[Bench], b: Sequence[Bench], by: By) -> list[float]:
    """Return the sizes that every benchmark of both sides served at least once."""
    sizes = [
        {
            size
            for size, levels in by_size(bench.levels, bench.requested.workload.name, by).items()
            if mean_rate(levels) is not None
        }
        for bench in (*a, *b)
    ]
    return sorted(set.intersection(*sizes))


def _engine_runs(benches: Sequence[Bench], by: By, size: float, figure: Figure) -> list[float]:
    """Return a figure of one size, a mean for each engine run."""
    levels = by_size(merged(benches), benches[0].requested.workload.name, by).get(size, ())
    values = [mean_rate(own, figure) for own in by_engine_run(levels).values()]
    return [value for value in values if value is not None]


def _of_limit(limit: Limit, level: Level) -> float | None:
    spread = getattr(level.measured, limit.metric, None) if level.valid else None
    return getattr(spread, limit.percentile, None)


def _at(name: str, by: By, size: float) -> str:
    return f"{name} at {size:g} " + ("concurrent" if by == "concurrency" else "requests/s")


def _few(what: str, engine_runs: int, needed: int) -> Finding:
    return Finding(
        "BENCH-LIVES",
        what,
        f"{engine_runs} engine run{'' if engine_runs == 1 else 's'} on a side, expected {needed}: "
        "restarts differ by more than repeats in one engine run, so this is not to be published",
        needed=needed,
    )


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
