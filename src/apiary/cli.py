# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import json

import click

from apiary.bench_command import bench
from apiary.capacity_command import capacity_command
from apiary.compare_command import compare_command
from apiary.explain_command import explain
from apiary.fleet_command import fleet
from apiary.inputs import json_option
from apiary.model_command import model
from apiary.output import Findings
from apiary.place_command import place_command
from apiary.plan_commands import diff, plan, render
from apiary.probe_command import probe
from apiary.report_command import report
from apiary.rollout_command import rollout
from apiary.schemas import NAMES, schema
from apiary.topology_commands import topology


@click.group(cls=Findings, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="apiary")
def cli() -> None:
    """From bare AMD Instinct hosts to serving vLLM replicas.

    Exit code 0: fine; 1: a finding of severity error; 2: wrong usage.
    """


@cli.command(name="schema")
@click.argument("name", type=click.Choice(NAMES))
@json_option
def schema_(name: str, as_json: bool) -> int:
    """Print the JSON Schema of a document."""
    del as_json  # a schema is JSON either way
    click.echo(json.dumps(schema(name), indent=2))
    return 0


for command in (
    bench,
    probe,
    topology,
    place_command,
    model,
    plan,
    explain,
    diff,
    render,
    report,
    rollout,
    compare_command,
    capacity_command,
    fleet,
):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        code = cli.main(arguments, prog_name="apiary", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.Abort:
        click.echo("aborted", err=True)
        return 130
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    return code if isinstance(code, int) else 0
