# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary telemetry`: what is watched of a fleet, for those who run their own Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.programs import dashboards

from apiary.app.inputs import json_option
from apiary.app.options import inventory_option, limit_option, vault_option
from apiary.app.output import echo, exit_code, print_document, report
from apiary.fleet.telemetry.inputs import hosts_of_artifacts, hosts_of_inventory, load_settings

GRAFANA = "grafana/dashboards"
FILES = "apiary.telemetry-files/v1"


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
@json_option
def render_command(
    sources: tuple[str, ...],
    limit: str | None,
    vault: tuple[str, ...],
    artifacts: Path | None,
    settings: str | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Write prometheus.yml, targets, rules, alertmanager.yml and Grafana's dashboards.

    All of it is made from the hosts' saved plans, as the role monitoring makes it; no host is
    asked. Run it again after each change: what is the same is not touched.

    Exit code 0: written; 1: a finding of severity error, and nothing was written; 2: wrong usage.

    \b
    apiary telemetry render --inventory inventory/mine --out telemetry
    apiary telemetry render --artifacts artifacts --settings slos.yml --out telemetry
    """
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
    states: dict[str, str] = {}
    findings = [*plan.findings, *unplanned]
    if not has_errors(findings):
        boards = {f"{GRAFANA}/{name}": text for name, text in dashboards(plan).items()}
        states = _write(out, {**plan.files, **boards})
    if as_json:
        print_document(
            {"schema": FILES, "out": str(out), "files": states, "findings": to_document(findings)}
        )
    else:
        _tell(out, states)
    report(findings, as_json)
    return exit_code(findings)


def _write(out: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Write files by path below a directory; return which are new, which were as they are."""
    states = {}
    for path, content in sorted(files.items()):
        place = out / path
        same = place.is_file() and place.read_bytes() == content.encode()
        if not same:
            write_text(place, content)
        states[path] = "unchanged" if same else "written"
    return states


def _tell(out: Path, states: dict[str, str]) -> None:
    """Print each file that is not as it was, and how many are."""
    same = sum(state == "unchanged" for state in states.values())
    for path, state in states.items():
        if state != "unchanged":
            echo(f"{state:9} {out / path}")
    if same:
        echo(f"{same} files are as they were")
