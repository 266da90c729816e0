# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary capacity`: hosts for a request rate, by what was measured, its arithmetic shown."""

from __future__ import annotations

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.capacity import (
    Capacity,
    capacity,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import slo_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import number, percent, whole
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import slo as slo_of
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.output import exit_code, print_document, show
from apiary.bench.report.inputs import load_benches

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
@json_option
def capacity_command(
    results: tuple[str, ...],
    rate: float,
    spare: int,
    batch: int,
    hosts: int | None,
    slo: str | None,
    as_json: bool,
) -> int:
    """Say how many hosts a request rate needs under the SLO, with room for failures and rollouts.

    RESULT is what `apiary bench --out` wrote: results of one configuration. Nothing is predicted:
    without a measured rate under the SLO there is no answer.

    \b
    apiary capacity dp2-tp4.json --rate 120 --spare 2 --batch 1
    """
    benches = load_benches(results)
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
    return Group(table, Text(), Text(answer, style="bold green"), *notes)
