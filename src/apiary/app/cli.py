# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import click

from apiary.app.ansible_config import print_path
from apiary.app.lazy import LazyGroup, sections

# A command is one line: its name, where it is, a few words (not more than fit 80 columns).
SECTIONS = sections(
    """
First day, in this order
  doctor         help.doctor.command:doctor             Check controller and inventory first.
  probe          host.probe_command:probe               Gather what hosts say of themselves.
  topology       host.topology_command:topology         Read and draw a host's GPUs and links.
  plan           plan.commands:plan                     Say what a host, or the fleet, would become.
  explain        plan.explain_command:explain           Say why each flag of a plan is there.
  rollout        rollout.command:rollout                Apply it: canary first, then waves.
Every day
  fleet          fleet.command:fleet                    Report the state of all hosts.
  diff           plan.commands:diff                     Show how two plans differ.
  advise         plan.advise_command:advise             List a release's known defects.
  mirror         help.mirror_command:mirror             List what hosts fetch from elsewhere.
  telemetry      fleet.telemetry.command:telemetry      Write what watches the fleet.
  finding        help.finding_command:finding           Say what a finding's code means.
  support-bundle help.bundle.command:support_bundle     Collect what help needs to see.
How much does it serve
  bench          bench.command:bench                    Measure engines under load.
  report         bench.results:report                   Show what benchmarks found.
  compare        bench.results:compare_command          Say whether one side is better.
  capacity       bench.results:capacity_command         Say how many hosts a rate needs.
A step at a time, and for scripts
  model          plan.model_command:model               Read a model, and what it takes up.
  place          host.place_command:place_command       Cut a host into replicas.
  render         plan.commands:render                   Write a plan's units or objects.
  schema         app.schemas:schema_command             Print a document's JSON Schema.
"""
)


@click.group(
    cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="apiary")
@click.option(
    "--ansible-config",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_path,
    help="Print where Apiary's own ansible.cfg is: ANSIBLE_CONFIG=$(apiary --ansible-config).",
)
def cli() -> None:
    """From bare AMD Instinct hosts to serving vLLM replicas.

    \b
    apiary doctor --inventory inventory/mine    is all there for a first run?
    apiary plan --inventory inventory/mine      what would change, and why
    apiary COMMAND --help                       what it does, with examples

    The Tab key: `eval "$(_APIARY_COMPLETE=bash_source apiary)"`, or zsh_source, or fish_source.

    Exit code 0: fine; 1: a finding of severity error; 2: wrong usage. No colour where NO_COLOR is
    set or no terminal is.
    """


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
