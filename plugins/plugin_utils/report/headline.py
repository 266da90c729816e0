# SPDX-License-Identifier: GPL-3.0-or-later

"""A report, and what it says first: which configuration is best, under which SLO, how surely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..bench.comparison.compare import Verdict, compare, doubt, unproven
from ..bench.comparison.sameness import by_engine_run, question
from ..bench.ledger import By
from ..bench.search import searched_by
from ..bench.types import Bench, Interval, Workload
from ..bench.words import between, found_text, size_text, slo_text, workload_text
from ..findings import ApiaryError, Finding
from ..numbers import number, percent
from ..tune.summary import summary
from ..tune.types import Tune
from .data import Configuration, Curve, Headline, Report, best_load, curves_of, gather, workloads_of


def headline_of(
    configurations: Sequence[Configuration], workloads: Sequence[Workload], curves: Sequence[Curve]
) -> tuple[Headline, tuple[Finding, ...]]:
    """Return the answer to what was requested first, and what is to be known of its comparisons.

    What no rule could check is said in the same sentence: it is no answer to publish.
    """
    return _doubted(*_answer(configurations, workloads, curves), configurations)


def _doubted(
    headline: Headline, findings: tuple[Finding, ...], configurations: Sequence[Configuration]
) -> tuple[Headline, tuple[Finding, ...]]:
    doubted = [configuration for configuration in configurations if unproven(configuration.benches)]
    if not doubted:
        return headline, findings
    names = _listed([item.name for item in doubted])
    notes = (note for item in doubted for note in doubt(item.name, unproven(item.benches)))
    text = f"{headline.text} Not to be published: not every rule was checked or kept for {names}."
    return replace(headline, text=text), tuple(dict.fromkeys((*findings, *notes)))


def _answer(
    configurations: Sequence[Configuration], workloads: Sequence[Workload], curves: Sequence[Curve]
) -> tuple[Headline, tuple[Finding, ...]]:
    work = workloads[0]
    slo = configurations[0].benches[0].requested.slo
    requested = question(configurations[0].benches[0])
    alike = {n for n, one in enumerate(configurations) if question(one.benches[0]) == requested}
    searched = searched_by([bench for n in sorted(alike) for bench in configurations[n].benches])
    rates = _ranked(configurations, alike, work, searched[:1])
    if not rates and len(searched) > 1:
        # Not even one stream keeps the limits, and slow enough arrivals do.
        searched = searched[1:]
        rates = _ranked(configurations, alike, work, searched)
    if not slo or not rates:
        return _without_slo(configurations, work, curves, bool(slo)), ()
    order = sorted(rates, key=lambda place: -rates[place].mean)
    best = configurations[order[0]]
    rate = rates[order[0]]
    lost = {n: one for n, one in enumerate(configurations) if n not in rates}
    reasons = [f"{configurations[n].name}: {_held(configurations[n], work)}" for n in order]
    reasons += [
        f"{one.name}: {_unranked(one, work) if n in alike else 'its request differs'}, "
        "so it is not ranked"
        for n, one in lost.items()
    ]
    goal = f"{workload_text(work)}, {slo_text(slo)}"
    holds = f"{between(rate, 'requests/s')} under the SLO"
    if searched == ("request_rate",):
        holds += " of random arrivals"
    arrivals = held_rate(best, work, searched[1:]) if len(searched) > 1 else None
    if arrivals is not None:
        holds += f" ({between(arrivals, 'requests/s')} of random arrivals)"
    unlike = [one for n, one in enumerate(configurations) if n not in alike]
    if len(order) == 1 and not unlike:
        text = f"{best.name} holds {holds}: {goal}."
        return Headline(text, "measured", (*reasons, _sure(rate, best)), order[0]), ()
    findings: list[Finding] = []
    reported: dict[str, list[str]] = defaultdict(list)
    for other in (*unlike, *(configurations[place] for place in order[1:])):
        try:
            verdict = compare(other.benches, best.benches)
        except ApiaryError as refusal:
            findings += refusal.findings
            reported["not compared"].append(other.name)
            reasons.append(f"against {other.name}: not compared: {refusal.findings[0].message}")
            continue
        findings += verdict.findings
        # The order is that of the search; what the levels say the other way round is no gain.
        says = verdict.verdict if verdict.verdict != "worse" else "no difference found"
        reported[says].append(other.name)
        reasons.append(f"against {other.name}: {against_text(verdict)}")
    endings = ("no difference found", "not decided", "not compared", "better")
    ending = next(says for says in endings if reported[says])
    same = [best.name] if ending == "no difference found" else []
    others = _listed([*same, *reported[ending]])
    most = "the most, " if len(order) > 1 else ""
    text = {
        "no difference found": f"No difference found between {others}, at {holds}: {goal}.",
        "not decided": f"{best.name} holds the most, {holds}, but one engine run does not decide "
        f"it against {others}: {goal}.",
        "not compared": f"{best.name} holds {most}{holds}, but not all can be compared: {goal}.",
        "better": f"{best.name} is better than {others}: {holds}, {goal}.",
    }[ending]
    first = order[0] if ending == "better" else None
    return Headline(text, ending, tuple(reasons), first), tuple(dict.fromkeys(findings))


def _ranked(
    configurations: Sequence[Configuration], alike: set[int], work: Workload, by: Sequence[By]
) -> dict[int, Interval]:
    """Return the rate under the SLO of each that was asked alike and has one."""
    held = {n: held_rate(configurations[n], work, by) for n in sorted(alike)}
    return {n: rate for n, rate in held.items() if rate is not None}


def of_tuning(
    state: Tune, configurations: Sequence[Configuration]
) -> tuple[Headline, tuple[Finding, ...]]:
    """Return what a tuning chose, everything that it says of the way there, and its findings."""
    return _doubted(_of_tuning(state, configurations), state.findings, configurations)


def _of_tuning(state: Tune, configurations: Sequence[Configuration]) -> Headline:
    first, *rest = (line.strip() for line in summary(state))
    choice = state.choice
    if choice is None:
        return Headline(f"{first}.", "unfinished", tuple(rest))
    label = state.candidate(choice.candidate).label if choice.candidate else None
    names = [configuration.name for configuration in configurations]
    best = names.index(label) if label in names and choice.verdict != "nothing measured" else None
    return Headline(f"{first}.", choice.verdict, tuple(rest), best)


def against_text(verdict: Verdict, word: bool = True) -> str:
    """Return a verdict with its ratio, how sure that is, and what would have been seen."""
    parts: list[str] = [verdict.verdict] if word else []
    if verdict.ratio is not None:
        ends = ""
        if verdict.low is not None and verdict.high is not None:
            ends = f" ({number(verdict.low)} to {number(verdict.high)})"
        parts.append(f"{number(verdict.ratio)} times{ends}")
    if verdict.p is not None:
        parts.append("p < 0.001" if verdict.p < 0.001 else f"p = {number(verdict.p, 2)}")
    engine_runs = min((side.n for side in (verdict.a, verdict.b) if side is not None), default=0)
    parts.append(f"{engine_runs} run{'' if engine_runs == 1 else 's'} of each engine")
    if verdict.detectable is not None:
        parts.append(f"a difference of {percent(verdict.detectable)} would have shown")
    return ", ".join(parts)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def held_rate(
    configuration: Configuration, work: Workload, searched: Sequence[By] = ()
) -> Interval | None:
    """Return the request rate that is kept under the SLO, None where it never is.

    It is that of the streams where both they and random arrivals were searched, or of ``searched``.
    """
    known = {
        item.by: item.request_rate
        for item in configuration.searches
        if item.workload == work.name and item.best and item.request_rate is not None
    }
    order: Sequence[By] = searched or ("concurrency", "request_rate")
    return next((known[by] for by in order if by in known), None)


def _held(configuration: Configuration, work: Workload) -> str:
    matches = [item for item in configuration.searches if item.workload == work.name]
    return "; ".join(
        f"{between(item.request_rate, 'requests/s')}, {found_text(item)}" for item in matches
    )


def _sure(rate: Interval, configuration: Configuration) -> str:
    if rate.low is None or rate.n < 2:
        return (
            "One run only: how sure this is, is not known; repeat it with restarts (--engine-runs)."
        )
    if len(by_engine_run(configuration.levels)) < 2:
        return (
            f"95 % interval over {rate.n} repeats in one engine run; restarts differ by "
            "more, so repeat it with them (--engine-runs)."
        )
    return f"95 % interval over {rate.n} engine runs."


def _unranked(configuration: Configuration, work: Workload) -> str:
    """Return why no rate under the SLO is known."""
    if any(item.workload == work.name for item in configuration.searches):
        return "no level kept the SLO"
    return _no_search(configuration.benches)


def _no_search(benches: Sequence[Bench]) -> str:
    """Return why no search found a limit: there was none, or it did not end."""
    if not any("slo" in bench.requested.phases for bench in benches):
        return "the SLO's limit was not searched for"
    return "no search for the SLO's limit ended"


def _without_slo(
    configurations: Sequence[Configuration],
    work: Workload,
    curves: Sequence[Curve],
    requested: bool,
) -> Headline:
    peak = best_load(curves, work.name, "output_token_rate")
    kept = best_load(curves, work.name, "request_rate", ("OK",)) if requested else None
    if peak is None:
        return Headline("No level is valid, so there is no result.", "no result")
    rate, curve, point = kept or peak
    shown = between(rate, "requests/s" if kept else "output tokens/s")
    if kept:
        verdict = "unfinished"
        why = _no_search([bench for each in configurations for bench in each.benches])
        why = f"{why[0].upper()}{why[1:]}. The most that is known to keep the SLO"
    else:
        verdict = "SLO missed" if requested else "measured"
        why = "No level kept the SLO" if requested else "No SLO was requested, so nothing is ranked"
        why += ". The most that was measured"
    one = configurations[curve.configuration]
    at = size_text(curve.by, point.size)
    text = f"{why}: {shown} with {one.name} at {at}, {workload_text(work)}."
    return Headline(text, verdict, (_sure(rate, one),))


def make_report(benches: Sequence[Bench], tuning: Tune | None = None) -> Report:
    """Return the report of at least one benchmark; a tuning's own choice is its headline."""
    configurations = gather(benches)
    workloads = workloads_of(configurations)
    curves = curves_of(configurations)
    if tuning is not None:
        headline, notes = of_tuning(tuning, configurations)
    else:
        headline, notes = headline_of(configurations, workloads, curves)
        headline = replace(headline, reasons=(*headline.reasons, *_costs(configurations)))
    return Report(
        headline,
        configurations,
        workloads,
        curves,
        tuple(dict.fromkeys((*_odd(configurations), *notes))),
    )


def _costs(configurations: Sequence[Configuration]) -> Iterator[str]:
    """Yield what each takes at its SLO, by the search that ranks."""
    for one in configurations:
        for cost in [found.cost for found in one.searches if found.cost][:1]:
            yield from (f"{one.name}: {line}" for line in cost.text)


def _odd(configurations: Sequence[Configuration]) -> Iterator[Finding]:
    """Yield what makes configurations hard to compare, and what has no result."""
    first = _requested(configurations[0].benches[0])
    for configuration in configurations:
        requested = _requested(configuration.benches[0])
        pairs = zip(requested, first, strict=True)
        differs = [f"{mine} instead of {other}" for mine, other in pairs if mine != other]
        if differs:
            yield Finding(
                "REPORT-DIFFERENT",
                configuration.name,
                f"was measured otherwise than {configurations[0].name}: {'; '.join(differs)}",
            )
        if not {"OK", "SLO_MISS"} & set(configuration.counts):
            yield Finding(
                "REPORT-NOTHING-VALID",
                configuration.name,
                f"none of its {sum(configuration.counts.values())} levels is valid",
            )


def _requested(bench: Bench) -> tuple[str, str, str]:
    """Return what a benchmark was of, in words."""
    requested = bench.requested
    limits, workload = slo_text(requested.slo), workload_text(requested.workload)
    return f"model {bench.target.model}", limits, workload
