# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary fleet`: what is known of all hosts together."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.options import inventory_option, limit_option, vault_option
from apiary.app.output import echo, exit_code, print_document, show
from apiary.fleet.hosts import ARTIFACTS, GROUP, read_hosts
from apiary.fleet.report.inputs import load_costs, load_host, reported_hosts
from apiary.fleet.report.page import fleet_page
from apiary.fleet.report.summary import summary
from apiary.rollout.store import Store

_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group()
def fleet() -> None:
    """Look at all hosts together.

    \b
    apiary fleet report --inventory inventory/mine --out fleet.html
    """


def _seconds(_ctx: click.Context, _option: click.Parameter, value: str) -> int:
    match = _AGE.fullmatch(value)
    if not match:
        raise click.BadParameter("expected a number and s, m, h or d, as in 24h")
    return int(match[1]) * _SECONDS[match[2]]


@fleet.command(name="report")
@inventory_option("The hosts that are to be there, and their racks; else those with documents.")
@limit_option("Hosts, groups or patterns of the inventory.")
@click.option("--group", default=GROUP, show_default=True, help="The inventory's group.")
@vault_option("For the inventory, as Ansible's; may be given often.")
@click.option(
    "--artifacts",
    type=click.Path(path_type=Path),
    help="What the playbooks wrote; without it, the hosts' apiary_artifacts, else artifacts.",
)
@click.option("--run", help="Show this rollout's outcome instead of the last one's.")
@click.option(
    "--out", type=click.Path(), help="Write the report as one HTML file that opens without network."
)
@click.option(
    "--stale",
    default="24h",
    show_default=True,
    callback=_seconds,
    help="Warn of an acceptance that is older: a number and s, m, h or d.",
)
@click.option(
    "--allow-unreached",
    is_flag=True,
    help="Let hosts that were not reached, or have no acceptance, be warnings.",
)
@json_option
def report_command(
    sources: tuple[str, ...],
    limit: str | None,
    group: str,
    vault: tuple[str, ...],
    artifacts: Path | None,
    run: str | None,
    out: str | None,
    stale: int,
    allow_unreached: bool,
    as_json: bool,
) -> int:
    """Show the state of every host: accepted, failing, in quarantine, not reached, unknown.

    Reads what the playbooks and rollouts left on this machine, and asks no host. Hosts of the
    inventory of which nothing is known are in the report as well.

    Exit code 0: all accepted; 1: a host is not, was not reached, or has no acceptance.

    \b
    apiary fleet report -i inventory/mine --out fleet.html
    """
    if limit and not sources:
        raise click.UsageError("--limit needs --inventory")
    now = datetime.datetime.now(datetime.UTC)
    directory = artifacts or Path(ARTIFACTS)
    hosts = read_hosts(sources, limit, group, vault).hosts if sources else reported_hosts(directory)
    if sources and artifacts is None and hosts:
        directory = Path(hosts[0].artifacts)
    damaged: tuple[Finding, ...] = ()
    try:
        store = Store(directory)
        rollout = store.load_run(run) if run else store.last_change()
    except ApiaryError as refusal:
        if run is not None:
            raise
        rollout, damaged = None, refusal.findings  # the hosts are what the report is for
    made = fleet_report(
        [load_host(host, artifacts, now) for host in hosts],
        now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        rollout,
        stale_seconds=stale,
        allow_unreached=allow_unreached,
    )
    made = replace(made, costs=tuple(load_costs(directory)))
    if out:
        write_text(Path(out), fleet_page(made))
    if as_json:
        print_document(made)
    else:
        show(summary(made))
        if out:
            echo(f"wrote {out} ({Path(out).stat().st_size / 1e6:.1f} MB)")
    findings = (*damaged, *made.findings)
    output.report(findings, as_json)
    return exit_code(findings)
