# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary telemetry`: what is watched of a fleet, for those who run their own Prometheus."""

from __future__ import annotations

from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.dashboards import (
    dashboards,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.labels import SETS
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.recording import (
    recorded_series,
)

from apiary.app.inputs import json_option
from apiary.app.options import inventory_option, limit_option, vault_option
from apiary.app.output import echo, exit_code, grid, print_document, report, show
from apiary.fleet.telemetry.files import State, write_files
from apiary.fleet.telemetry.inputs import (
    hosts_of_artifacts,
    hosts_of_inventory,
    load_settings,
)

GRAFANA = "grafana/dashboards"
FILES = "apiary.telemetry-files/v1"
SERIES = "apiary.telemetry-series/v1"


@click.group()
def telemetry() -> None:
    """Write what Prometheus, Alertmanager and Grafana need to watch a fleet.

    \b
    apiary telemetry render --inventory inventory/mine --out telemetry
    """


@telemetry.command(name="render")
@inventory_option("The fleet's Ansible inventory, for addresses and racks; may be given often.")
@limit_option("Only these GPU hosts of the inventory.")
@vault_option("For the inventory, as Ansible's; may be given often.")
@click.option(
    "--artifacts",
    type=click.Path(path_type=Path),
    help="What the playbooks wrote of each host; of the inventory, if left out. Without an"
    " inventory, all hosts that have a plan there, reached by their names.",
)
@click.option(
    "--settings",
    metavar="FILE",
    type=click.Path(),
    help="YAML: slos, receivers, routes, thresholds and more; or the variables monitoring_….",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory to write the files below.")
@click.option(
    "--list-series",
    is_flag=True,
    help="Say which series rules record, with their meaning, and end.",
)
@json_option
def render_command(
    sources: tuple[str, ...],
    limit: str | None,
    vault: tuple[str, ...],
    artifacts: Path | None,
    settings: str | None,
    out: Path | None,
    list_series: bool,
    as_json: bool,
) -> int:
    """Write prometheus.yml, targets, rules, alertmanager.yml and Grafana's dashboards.

    All of it is made from the hosts' saved plans, as the role monitoring makes it; no host is
    asked. Run it again after each change: what is the same is not touched, and of what is no
    longer needed only files that it wrote itself are removed.

    Exit code 0: written; 1: a finding of severity error, and nothing was written; 2: wrong usage.

    \b
    apiary telemetry render --inventory inventory/mine --out telemetry
    apiary telemetry render --artifacts artifacts --settings slos.yml --out telemetry
    apiary telemetry render --list-series
    """
    if list_series:
        _print_series(as_json)
        return 0
    if not sources and artifacts is None:
        raise click.UsageError("give --inventory, or --artifacts alone")
    if out is None:
        raise click.UsageError("give --out: the directory that the files go to")
    if limit and not sources:
        raise click.UsageError("--limit needs --inventory")
    asked = load_settings(settings)
    hosts, unplanned = (
        hosts_of_inventory(sources, limit, vault, artifacts)
        if sources
        else hosts_of_artifacts(artifacts or Path())
    )
    plan = telemetry_plan(hosts, asked)
    states: dict[str, State] = {}
    findings = [*plan.findings, *unplanned]
    if not has_errors(findings):
        boards = {f"{GRAFANA}/{name}": text for name, text in dashboards(plan).items()}
        states, kept = write_files(out, {**plan.files, **boards})
        findings += kept
    if as_json:
        print_document(
            {"schema": FILES, "out": str(out), "files": states, "findings": to_document(findings)}
        )
    else:
        _tell(out, states)
    report(findings, as_json)
    return exit_code(findings)


def _tell(out: Path, states: dict[str, State]) -> None:
    """Print each file that is not as it was, and how many are."""
    same = sum(state == "unchanged" for state in states.values())
    for path, state in states.items():
        if state != "unchanged":
            echo(f"{state:9} {out / path}")
    if same:
        echo(f"{same} files are as they were")


def _print_series(as_json: bool) -> None:
    """Print what is recorded."""
    series = [
        {
            "name": record["record"],
            "labels": [*SETS[record["labels"]], *record.get("more", ())],
            "unit": record["unit"],
            "meaning": record["meaning"],
            "only_when": record.get("only_when"),
        }
        for record in recorded_series()
    ]
    if as_json:
        print_document({"schema": SERIES, "series": series})
        return
    columns = ("series", "unit", "meaning", "labels")
    rows = (
        (record["name"], record["unit"], record["meaning"], " ".join(record["labels"]))
        for record in series
    )
    show(grid("Recorded series", columns, rows))
