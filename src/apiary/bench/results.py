# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that read benchmarks: `apiary report`, `apiary compare`, `apiary capacity`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.capacity import (
    Capacity,
    capacity,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    Comparison,
    Verdict,
    comparison,
    regression,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.live import (
    compare_sides,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.cost import price_of, with_costs
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import between, slo_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import (
    read_lines,
    write_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import (
    NONE,
    number,
    percent,
    whole,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import (
    against_text,
    make_report,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import slo as slo_of
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.options import price_option
from apiary.app.output import echo, exit_code, print_document, show
from apiary.bench.report.inputs import load_benches, load_results
from apiary.bench.report.page import page
from apiary.bench.summary import report_summary

_STYLES = {"better": "green", "worse": "red"}


class ManyWith(click.Command):
    """A command whose --with takes every name up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say --with before each name that follows one."""
        texts, within = list[str](), False
        for word in args:
            within = word == "--with" or (within and (word == "-" or not word.startswith("-")))
            if word != "--with":
                texts += ["--with", word] if within else [word]
        return super().parse_args(ctx, texts)


@click.command(name="compare", cls=ManyWith)
@click.argument("results", nargs=-1, type=click.Path())
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="RESULT…",
    help="What is held against the results before it; a name for each engine run or run.",
)
@click.option(
    "--regression",
    "earlier",
    is_flag=True,
    help="The first side are earlier results of the same thing; slower now is an error.",
)
@click.option(
    "--allow-first",
    is_flag=True,
    help="With --regression: no earlier result of the same thing is no error.",
)
@click.option(
    "--router-log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="Instead of results: a router's log while router_experiments divided the sessions.",
)
@price_option
@json_option
def compare_command(
    results: tuple[str, ...],
    others: tuple[str, ...],
    earlier: bool,
    allow_first: bool,
    logs: tuple[str, ...],
    gpu_hour_price: str | None,
    as_json: bool,
) -> int:
    """Report whether the second side is better or worse than the first, or neither.

    Each side is one configuration, in as many results as it was measured. Better and worse are said
    only where the interval of the ratio leaves out 1 and the difference is worth it.

    \b
    apiary compare tp8-*.json --with dp2-tp4-*.json
    apiary compare last-week.json --with today.json --regression [--allow-first]
    apiary compare --router-log router-001.log --router-log router-002.log
    """
    if bool(logs) == bool(results or others) or bool(results) != bool(others):
        raise click.UsageError("results on both sides of --with, or --router-log")
    if allow_first and not earlier:
        raise click.UsageError("--allow-first is for --regression")
    if logs and (earlier or gpu_hour_price):
        raise click.UsageError("--regression and --gpu-hour-price are for results, not for logs")
    if logs:
        outcome = compare_sides(_lines(logs, as_json))
    else:
        price = price_of(gpu_hour_price)
        a, b = load_benches(results, price), load_benches(others, price)
        outcome = _regression(a, b, allow_first) if earlier else comparison(a, b)
        outcome = with_costs(outcome, a, b)
    if as_json:
        print_document(outcome)
    else:
        show(comparison_table(outcome))
    output.report(outcome.findings, as_json)
    return exit_code(outcome.findings)


def _lines(logs: Sequence[str], quiet: bool) -> Iterator[str]:
    with output.progress(quiet) as shown:
        for name in shown.track(logs, description="logs"):
            yield from read_lines(name)


def _regression(a: Sequence[Bench], b: Sequence[Bench], allow_first: bool) -> Comparison:
    found = regression(a, b)
    notes = _of_regression(found, b[0].name, allow_first)
    return replace(found, findings=(*found.findings, *notes))


def _of_regression(found: Comparison, name: str, allow_first: bool) -> Iterator[Finding]:
    if found.verdict is None:
        unlike = ", ".join(dict.fromkeys(difference.what for difference in found.differs))
        # A gate that compares nothing and passes would never be noticed.
        yield Finding(
            "REPORT-NO-EARLIER",
            name,
            f"none of the earlier results is of the same thing ({unlike} differ), so whether it is "
            "slower than before is not known",
            accepted=allow_first,
        )
    if found.verdict == "not decided":
        yield Finding(
            "REPORT-NOT-DECIDED",
            name,
            "was measured in one engine run, or the earlier results were, so whether it is "
            "slower than before is not known",
        )
    worse = [verdict for verdict in found.verdicts if verdict.verdict == "worse"]
    if worse:
        texts = "; ".join(f"{verdict.what}: {against_text(verdict)}" for verdict in worse)
        yield Finding("REPORT-REGRESSION", name, f"is worse than it was: {texts}")


def comparison_table(outcome: Comparison) -> RenderableType:
    """Return the verdict in one line, and a row a figure."""
    whole = outcome.verdicts[0] if outcome.verdicts else None
    says = outcome.verdict or "not compared"
    where = reason = f", {whole.what}: {against_text(whole, word=False)}" if whole else ""
    if whole is not None and whole.verdict != outcome.verdict:
        texts = [verdict.what for verdict in outcome.verdicts if verdict.verdict == outcome.verdict]
        where = f" in {', '.join(texts)}"
    if outcome.verdict in ("better", "worse"):
        sentence = f"{outcome.b} is {says} than {outcome.a}{where}"
    elif outcome.verdict is None:
        sentence = f"{outcome.b} was not compared with {outcome.a}"
    else:
        sentence = f"{outcome.verdict} between {outcome.a} and {outcome.b}{reason}"
    parts: list[RenderableType] = [Text(sentence, style=f"bold {_STYLES.get(says, 'cyan')}")]
    if outcome.differs:
        parts.append(Text("what else differs: " + "; ".join(map(str, outcome.differs))))
    if outcome.verdicts:
        parts += [Text(), _table(outcome)]
    return Group(*parts)


def _table(outcome: Comparison) -> Table:
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    heads = ("figure", outcome.a, outcome.b, "ratio", "p", "would have shown", "verdict")
    for head in heads:
        left = head in ("figure", "verdict")
        table.add_column(Text(head), justify="left" if left else "right", no_wrap=head == "figure")
    for item in (*outcome.verdicts, *outcome.costs):
        table.add_row(
            *map(Text, _cells(item)), Text(item.verdict, style=_STYLES.get(item.verdict, ""))
        )
    return table


def _cells(one: Verdict) -> Iterator[Any]:
    # Latencies in milliseconds, as everywhere else; joules of a million tokens are millions.
    scale = 1e-3 if one.what.startswith("J per") else 1
    scale = 1000 if one.what.startswith(("ttft", "tpot", "itl")) else scale
    yield {1000: f"{one.what}, ms", 1e-3: f"k{one.what}"}.get(scale, one.what)
    for side in (one.a, one.b):
        yield between(side, scale=scale)
    if one.low is None or one.high is None:
        yield number(one.ratio)
    else:
        yield f"{number(one.ratio)} ({number(one.low)} to {number(one.high)})"
    yield NONE if one.p is None else "< 0.001" if one.p < 0.001 else number(one.p, 2)
    yield percent(one.detectable)


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option("--out", help="Write the report as one HTML file that opens without network.")
@price_option
@json_option
def report(
    results: tuple[str, ...], out: str | None, gpu_hour_price: str | None, as_json: bool
) -> int:
    """Show what benchmarks found: curves, SLO, verdicts, every level and what it was measured on.

    RESULT is what `apiary bench --out` or a run of tune.yml wrote. Results of one name are repeats
    of one configuration; results of several names are compared.

    \b
    apiary report dp2-tp4.json tp8.json --out report.html
    """
    result = load_results(results, price_of(gpu_hour_price))
    outcome = make_report(result.benches, tuning=result.tuning)
    if out:
        write_text(Path(out), page(outcome))
    if as_json:
        print_document(outcome)
    else:
        show(report_summary(outcome))
        if out:
            echo(f"wrote {out}")
    output.report(outcome.findings, as_json)
    return exit_code(outcome.findings)


# Requests a second; beyond it the answer has more digits than sense.
_MOST = 1e9


@click.command(name="capacity")
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option(
    "--rate",
    type=click.FloatRange(0, _MOST, min_open=True),
    required=True,
    help="Requests a second that the fleet has to serve within the SLO.",
)
@click.option(
    "--spare",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Hosts that may fail at any time.",
)
@click.option(
    "--batch",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Hosts that a rollout takes out at once.",
)
@click.option(
    "--hosts",
    type=click.IntRange(1),
    help="Hosts that were measured together, where the results do not say.",
)
@click.option("--slo", help="Only results of this SLO: ttft:p90:2s,tpot:p90:50ms.")
@price_option
@json_option
def capacity_command(
    results: tuple[str, ...],
    rate: float,
    spare: int,
    batch: int,
    hosts: int | None,
    slo: str | None,
    gpu_hour_price: str | None,
    as_json: bool,
) -> int:
    """Say how many hosts a request rate needs under the SLO, with room for failures and rollouts.

    RESULT is what `apiary bench --out` wrote: results of one configuration. Nothing is predicted:
    without a measured rate under the SLO there is no answer.

    \b
    apiary capacity dp2-tp4.json --rate 120 --spare 2 --batch 1
    """
    benches = load_benches(results, price_of(gpu_hour_price))
    if slo:
        benches = _of_slo(benches, slo)
    result = capacity(benches, rate, spare=spare, batch=batch, hosts=hosts)
    if as_json:
        print_document(result)
    else:
        show(capacity_table(result))
    output.report(result.findings, as_json)
    return exit_code(result.findings)


def _of_slo(benches: tuple[Bench, ...], text: str) -> tuple[Bench, ...]:
    """Return the benchmarks that were measured under this SLO."""
    wanted = slo_of(text)
    kept = tuple(bench for bench in benches if set(bench.requested.slo) == set(wanted))
    if not kept:
        others = dict.fromkeys(slo_text(bench.requested.slo) for bench in benches)
        raise error(
            "REPORT-OTHER-SLO",
            ", ".join(dict.fromkeys(bench.name for bench in benches)),
            f"no result is of {slo_text(wanted)}; there is {'; '.join(others)}",
        )
    return kept


def capacity_table(result: Capacity) -> RenderableType:
    """Return the arithmetic, a line a step, and the answer."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for line in result.lines:
        value = whole(line.value) if line.unit == "hosts" else number(line.value)
        table.add_row(Text(line.what), value, line.unit, Text(line.how))
    answer = (
        f"{result.hosts} host{'' if result.hosts == 1 else 's'} for {number(result.target_rate)} "
        f"requests/s, {percent(result.busy)} busy while all are up"
    )
    notes = [Text(f"assumed: {note}", style="dim") for note in result.assumptions]
    cost = map(Text, result.cost.text) if result.cost else ()
    return Group(table, Text(), Text(answer, style="bold green"), *cost, *notes)
