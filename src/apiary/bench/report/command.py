# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary report`: benchmarks as one HTML file, a terminal summary, or JSON."""

from __future__ import annotations

from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.make import make_report

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.output import echo, exit_code, print_document, show
from apiary.bench.report.inputs import load_results
from apiary.bench.report.page import page
from apiary.bench.summary import report_summary


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option("--out", help="Write the report as one HTML file that opens without network.")
@json_option
def report(results: tuple[str, ...], out: str | None, as_json: bool) -> int:
    """Show what benchmarks found: curves, SLO, verdicts, every level and what it was measured on.

    RESULT is what `apiary bench --out` or a run of tune.yml wrote. Results of one name are repeats
    of one configuration; results of several names are compared.

    \b
    apiary report dp2-tp4.json tp8.json --out report.html
    """
    result = load_results(results)
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
