# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary compare`: whether one configuration is better than another, or than it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    Comparison,
    Verdict,
    comparison,
    regression,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import between
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import NONE, number, percent
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import against_text
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.output import exit_code, print_document, show
from apiary.bench.report.inputs import load_benches

_STYLES = {"better": "green", "worse": "red"}


class ManyWith(click.Command):
    """A command whose --with takes every name up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say --with before each name that follows one."""
        texts: list[str] = []
        within = False
        for word in args:
            if word == "--with":
                within = True
            elif word.startswith("-") and word != "-":
                within = False
                texts.append(word)
            else:
                texts += ["--with", word] if within else [word]
        return super().parse_args(ctx, texts)


@click.command(name="compare", cls=ManyWith)
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option(
    "--with",
    "others",
    multiple=True,
    required=True,
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
@json_option
def compare_command(
    results: tuple[str, ...],
    others: tuple[str, ...],
    earlier: bool,
    allow_first: bool,
    as_json: bool,
) -> int:
    """Report whether the second side is better or worse than the first, or neither.

    Each side is one configuration, in as many results as it was measured. Better and worse are said
    only where the interval of the ratio leaves out 1 and the difference is worth it.

    \b
    apiary compare tp8-*.json --with dp2-tp4-*.json
    apiary compare last-week.json --with today.json --regression [--allow-first]
    """
    if allow_first and not earlier:
        raise click.UsageError("--allow-first is for --regression")
    a, b = load_benches(results), load_benches(others)
    outcome = _regression(a, b, allow_first) if earlier else comparison(a, b)
    if as_json:
        print_document(outcome)
    else:
        show(comparison_table(outcome))
    output.report(outcome.findings, as_json)
    return exit_code(outcome.findings)


def _regression(a: Sequence[Bench], b: Sequence[Bench], allow_first: bool) -> Comparison:
    result = regression(a, b)
    notes = tuple(_of_regression(result, b[0].name, allow_first))
    return replace(result, findings=(*result.findings, *notes))


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
    for item in outcome.verdicts:
        table.add_row(
            *map(Text, _cells(item)), Text(item.verdict, style=_STYLES.get(item.verdict, ""))
        )
    return table


def _cells(one: Verdict) -> Iterator[Any]:
    # Latencies are told in milliseconds, as everywhere else.
    scale = 1000 if one.what.startswith(("ttft", "tpot", "itl")) else 1
    yield f"{one.what}, ms" if scale == 1000 else one.what
    for side in (one.a, one.b):
        yield between(side, scale=scale)
    if one.low is None or one.high is None:
        yield number(one.ratio)
    else:
        yield f"{number(one.ratio)} ({number(one.low)} to {number(one.high)})"
    yield NONE if one.p is None else "< 0.001" if one.p < 0.001 else number(one.p, 2)
    yield percent(one.detectable)
