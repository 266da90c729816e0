# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary quality`: whether replicas answer as well as a reference did."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.module_utils.quality import QualityError, measure
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import (
    read_text,
    utc_now,
    write_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error, has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality import battery as batteries
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality import evaluate as gate

from apiary.app.inputs import json_option, load_plan
from apiary.app.output import echo, exit_code, plain_table, print_document, progress, report, show


@click.command(name="quality")
@click.option("--url", "urls", multiple=True, required=True, help="A replica; repeat for siblings.")
@click.option("--reference", metavar="FILE", help="The answers that these are held against.")
@click.option("--write-reference", metavar="FILE", help="Keep these answers as the reference.")
@click.option("--plan", metavar="PLAN", help="What serves: its recipe, GPU and tool parser.")
@click.option("--model", help="The name that is served; else that of the plan, or the first one.")
@click.option("--revision", help="Of the weights; else of the plan's path.")
@click.option("--tools", is_flag=True, help="Request tool calls, too; a plan with a parser does.")
@click.option("--seed", default=0, show_default=True, help="Of the order of the questions.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False),
    help="File with the engines' key; else the variable VLLM_API_KEY.",
)
@json_option
def quality_command(**options: Any) -> int:
    """Send replicas some 290 questions, and report whether their answers are still right.

    \b
    apiary quality --url http://gpu-001:8000 --write-reference quality.json
    apiary quality --url http://gpu-001:8000 --reference quality.json
    apiary quality --url http://gpu-001:8000 --url http://gpu-001:8001 --plan plan.json

    Run it while nothing else is sent to a replica. Several replicas are compared with one another.

    Exit code 0: nothing speaks against the answers; 1: they are worse, or differ; 2: wrong usage.
    """
    name = options["reference"]
    reference = batteries.read_reference(read_text(name), name) if name else None
    facts = gate.facts_of(load_plan(options["plan"])) if options["plan"] else {}
    items = batteries.battery(options["tools"] or bool(facts.get("tools")))
    measured = {
        url: _measured(url, items, options, facts) for url in dict.fromkeys(options["urls"])
    }
    verdicts = [gate.evaluate(url, items, answers, reference) for url, answers in measured.items()]
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    findings += gate.outliers(measured, items)
    if options["as_json"]:
        print_document({"verdicts": verdicts, "answers": measured})
    else:
        for verdict in verdicts:
            _show(verdict)
    if options["write_reference"] and not has_errors(findings):
        write_text(Path(options["write_reference"]), dumps(next(iter(measured.values()))))
        echo(f"{options['write_reference']} is the reference now", err=True)
    report(findings, options["as_json"])
    return exit_code(findings)


def _measured(url: str, items: Any, options: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
    """Return what a replica answers, with its progress on stderr; raises QUALITY-NOT-ASKED."""
    name, path = options["model"] or facts.get("model"), options["api_key_file"]
    request = batteries.request_of(url, items, seed=options["seed"], model=name)
    key = (read_text(path) if path else os.environ.get("VLLM_API_KEY", "")).strip()
    with progress(options["as_json"]) as bars:
        task = bars.add_task(url, total=len(items))
        try:
            result = measure(
                request, key.partition("\n")[0], lambda done: bars.update(task, completed=done)
            )
        except QualityError as failure:
            raise error("QUALITY-NOT-ASKED", url, str(failure)) from None
    own = {name: facts[name] for name in ("recipe", "gpu", "exact") if name in facts}
    own["revision"] = options["revision"] or facts.get("revision")
    return gate.quality(items, result, utc_now(), **own)


def _show(verdict: batteries.Verdict) -> None:
    outcome = f": {verdict.verdict}" if verdict.verdict else ""
    table = plain_table("probe", "verdict", "", title=f"{verdict.replica}{outcome}")
    table.add_row("questions right", "", f"{verdict.share:.1%}")
    for probe in verdict.probes:
        table.add_row(probe.name, probe.verdict, gate.text_of(probe).partition(": ")[2])
    for line in verdict.differs:
        table.add_row("differs", "", line)
    show(table)
