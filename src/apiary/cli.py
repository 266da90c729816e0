# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from ansible_collections.apiary.instinct.plugins.module_utils import evidence as collector
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.search import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    architecture_of,
    build_plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    cost_words,
    diff_plans,
    elements,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import render_systemd
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from rich.console import Console
from rich.progress import Progress

from apiary import ssh
from apiary.output import Findings, exit_code, grid, print_document, report, show
from apiary.pictures import topology_svg, topology_table
from apiary.schemas import NAMES, schema

F = TypeVar("F", bound=Callable[..., Any])


def _remember_json(ctx: click.Context, _option: click.Parameter, value: bool) -> bool:
    ctx.find_root().meta["apiary.json"] = value
    return value


def json_option(command: F) -> F:
    """Add --json to a command; a refusal then is JSON on stderr as well."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_remember_json,
        is_eager=True,
        help="Print the JSON document instead of a table.",
    )(command)


@click.group(cls=Findings, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="apiary")
def cli() -> None:
    """From bare AMD Instinct hosts to serving vLLM replicas.

    Exit code 0: fine; 1: a finding of severity error; 2: wrong usage.
    """


@cli.command()
@click.argument("hosts", nargs=-1)
@click.option("--out", default="evidence", show_default=True, help="Directory for HOST.json files.")
@click.option("--user", help="Login user; else ~/.ssh/config's.")
@click.option("--port", type=click.IntRange(1, 65535), help="SSH port; else ~/.ssh/config's.")
@click.option("--identity", type=click.Path(exists=True, dir_okay=False), help="Private key file.")
@click.option(
    "--known-hosts",
    type=click.Path(exists=True, dir_okay=False),
    help="Host keys to trust instead of ~/.ssh/known_hosts.",
)
@click.option("--parallel", default=16, show_default=True, type=click.IntRange(1), help="At once.")
@click.option("--timeout", default=15.0, show_default=True, help="Seconds to connect.")
@json_option
def probe(
    hosts: tuple[str, ...],
    out: str,
    user: str | None,
    port: int | None,
    identity: str | None,
    known_hosts: str | None,
    parallel: int,
    timeout: float,
    as_json: bool,
) -> int:
    """Gather the evidence of this machine, or of HOSTS over SSH.

    \b
    apiary probe                      this machine
    apiary probe gpu-001 gpu-002      over SSH; host keys must be known
    """
    if not hosts:
        bundle = collector.collect()
        results = [ssh.Probed(str(bundle["host"]), bundle)]
    else:
        options = ssh.SshOptions(user, port, identity, known_hosts, timeout=timeout)
        hidden = as_json or not sys.stderr.isatty()
        with Progress(console=Console(stderr=True), disable=hidden, transient=True) as progress:
            task = progress.add_task("probing", total=len(set(hosts)))
            results = ssh.probe_many(
                hosts, options, parallel, done=lambda _probed: progress.advance(task)
            )
    files: dict[str, str] = {}
    for result in results:
        if result.bundle is not None:
            path = Path(out) / f"{result.host}.json"
            write_text(path, dumps(result.bundle))
            files[result.host] = str(path)
    findings = [finding for failure in ssh.failures(results) for finding in failure.findings]
    if as_json:
        click.echo(json.dumps({"files": files}, indent=2, sort_keys=True))
    else:
        rows = [(result.host, files.get(result.host, "failed")) for result in results]
        show(grid("Evidence", ("host", "file"), rows))
    report(findings, as_json)
    return exit_code(findings)


@cli.command()
@click.argument("captures", nargs=-1, required=True)
@click.option("--svg", help="Write the host's picture to this file.")
@click.option("--plan", "plan_file", help="Colour the picture by the replicas of this plan.")
@json_option
def topology(
    captures: tuple[str, ...], svg: str | None, plan_file: str | None, as_json: bool
) -> int:
    """Read evidence, or raw rocm-smi/amd-smi output, into a topology.

    \b
    apiary topology evidence/gpu-001.json --svg host.svg
    rocm-smi --showtopo | apiary topology -
    """
    placement: Placement | None = _plan(plan_file).placement if plan_file else None
    findings: list[Finding] = []
    for name in captures:
        found = read(read_text(name), name)
        findings += found.findings
        if as_json:
            print_document(found)
        else:
            show(topology_table(found, placement))
        if svg:
            target = svg if len(captures) == 1 else f"{Path(svg).with_suffix('')}-{found.host}.svg"
            write_text(Path(target), topology_svg(found, placement))
    report(findings, as_json)
    return exit_code(findings)


@cli.command(name="place")
@click.argument("topology_file", metavar="TOPOLOGY")
@click.option("--tp", required=True, type=int, help="tensor_parallel_size: GPUs per replica.")
@click.option("--replicas", default=1, show_default=True, type=int)
@click.option("--busy", multiple=True, metavar="BDF", help="A GPU to leave out; repeatable.")
@json_option
def place_(topology_file: str, tp: int, replicas: int, busy: tuple[str, ...], as_json: bool) -> int:
    """Cut a host into replicas, all at once, at the least cost.

    \b
    apiary place evidence/gpu-001.json --tp 4 --replicas 2
    """
    host = _topology(topology_file)
    placement = place(host, tp, replicas, busy)
    if as_json:
        print_document(placement)
    else:
        rows = [
            (
                str(index),
                " ".join(share.gpus),
                share.cpus or "any",
                ",".join(map(str, share.memory_nodes)) or "any",
                cost_words(share.cost),
            )
            for index, share in enumerate(placement.replicas)
        ]
        columns = ("replica", "GPUs", "CPUs", "memory nodes", "cost")
        show(grid(f"{host.host}: TP{tp} × {replicas}", columns, rows))
        click.echo(f"free: {' '.join(placement.free) or 'none'}")
        if placement.runner_up:
            click.echo(f"runner-up lost by {placement.runner_up.reason}")
    report(placement.findings, as_json)
    return exit_code(placement.findings)


@cli.command()
@click.argument("config_json")
@json_option
def model(config_json: str, as_json: bool) -> int:
    """Read a model's architecture from its Hugging Face config.json."""
    architecture = read_config(read_text(config_json), config_json)
    if as_json:
        print_document(architecture)
    else:
        rows = [
            (item.name, str(getattr(architecture, item.name)))
            for item in dataclasses.fields(architecture)
            if item.name not in ("details", "findings", "memory")
            and getattr(architecture, item.name) is not None
        ]
        show(grid(config_json, ("field", "value"), rows))
    report(architecture.findings, as_json)
    return exit_code(architecture.findings)


@cli.command()
@click.argument("deployment_file", metavar="DEPLOYMENT")
@click.argument("evidence_file", metavar="EVIDENCE")
@click.option("--model", "config_json", help="The model's config.json, if Apiary doesn't know it.")
@click.option("--out", help="Write the plan to this file.")
@json_option
def plan(
    deployment_file: str,
    evidence_file: str,
    config_json: str | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Plan a deployment (YAML) on the host that the evidence is of.

    \b
    apiary plan deployment.yml evidence/gpu-001.json --out plan.json
    """
    deployment = _deployment(deployment_file)
    config = config_json or deployment.model.config
    architecture = (
        read_config(read_text(config), config)
        if config
        else architecture_of(deployment, deployment_file)
    )
    planned = build_plan(deployment, _topology(evidence_file), architecture)
    if out:
        write_text(Path(out), dumps(planned))
    if as_json:
        print_document(planned)
    else:
        click.echo("\n".join(summary(planned)))
    report(planned.findings, as_json)
    return exit_code(planned.findings)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--why", metavar="ELEMENT", help="Only this flag or variable.")
@click.option("--brief", is_flag=True, help="Where the replicas run and why, without the command.")
@json_option
def explain(plan_file: str, why: str | None, brief: bool, as_json: bool) -> int:
    """Say why each flag and variable of a plan is there, with its source.

    \b
    apiary explain plan.json --why --attention-backend
    """
    planned = _plan(plan_file)
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for index, replica in enumerate(planned.replicas):
        for row in elements(replica):
            rows.setdefault(row, []).append(str(index))
    if why is not None:
        rows = {row: who for row, who in rows.items() if _element(row[0]) == why}
        if not rows:
            raise error(
                "EXPLAIN-NO-ELEMENT",
                plan_file,
                f"no flag or variable {why!r} in this plan",
                "run `apiary explain` without --why to see them all",
            )
    if as_json:
        names = ("element", "rule", "reason", "source")
        document = [
            {**dict(zip(names, row, strict=True)), "replicas": [int(one) for one in who]}
            for row, who in rows.items()
        ]
        click.echo(json.dumps({"host": planned.host, "elements": document}, indent=2))
        return 0
    click.echo("\n".join(summary(planned)))
    if not brief:
        _show_elements(rows, len(planned.replicas))
    return 0


def _show_elements(rows: dict[tuple[str, str, str, str], list[str]], replicas: int) -> None:
    """Print a row an element, values that differ by replica below each other, sources once."""
    merged: dict[str, tuple[list[str], str, str, str]] = {}
    for (element, rule, reason, source), who in rows.items():
        values = merged.setdefault(_element(element), ([], rule, reason, source))[0]
        values.append(element if len(who) == replicas else f"{element}  (replica {','.join(who)})")
    sources = list(dict.fromkeys(source for _values, _rule, _reason, source in merged.values()))
    shown = [
        ("\n".join(values), reason, f"{rule} [{sources.index(source) + 1}]")
        for values, rule, reason, source in merged.values()
    ]
    show(grid("", ("element", "why", "rule [source]"), shown))
    for number, source in enumerate(sources, 1):
        click.echo(f"[{number}] {source}")


def _element(shown: str) -> str:
    """Return the name in "--flag value" or "NAME=value"."""
    return shown.split()[0].partition("=")[0]


@cli.command()
@click.argument("before")
@click.argument("after")
@json_option
def diff(before: str, after: str, as_json: bool) -> int:
    """Show how two plans differ, as a unified diff."""
    lines = diff_plans(_plan(before), _plan(after))
    if as_json:
        click.echo(json.dumps({"changed": bool(lines), "diff": list(lines)}, indent=2))
    else:
        click.echo("\n".join(lines) or "the plans are the same")
    return 0


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--out", required=True, help="Directory to write the files below.")
@click.option("--target", type=click.Choice(["systemd"]), default="systemd", show_default=True)
@json_option
def render(plan_file: str, out: str, target: str, as_json: bool) -> int:
    """Write a plan's files below a directory, as they would lie on the host."""
    files = render_systemd(_plan(plan_file))
    written = []
    for item in files:
        path = Path(out) / item.path.lstrip("/")
        write_text(path, item.content, int(item.mode, 8))
        written.append(str(path))
    if as_json:
        click.echo(json.dumps({"target": target, "files": written}, indent=2))
    else:
        click.echo("\n".join(written))
    return 0


@cli.command(name="schema")
@click.argument("name", type=click.Choice(NAMES))
@json_option
def schema_(name: str, as_json: bool) -> int:
    """Print the JSON Schema of a document."""
    del as_json  # a schema is JSON either way
    click.echo(json.dumps(schema(name), indent=2))
    return 0


def _topology(name: str) -> Topology:
    return read(read_text(name), name)


def _plan(name: str) -> Plan:
    return from_document(Plan, _yaml(name), name)


def _deployment(name: str) -> Deployment:
    data = _yaml(name)
    # A group_vars file holds the same document under the playbooks' variable.
    if isinstance(data, dict) and set(data) == {"apiary_deployment"}:
        data = data["apiary_deployment"]
    return from_document(Deployment, data, name)


def _yaml(name: str) -> Any:
    """Return the data of a YAML or JSON file."""
    text = read_text(name)
    try:
        return json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (yaml.YAMLError, json.JSONDecodeError) as failure:
        raise error(
            "FILE-SYNTAX",
            name,
            f"is neither JSON nor YAML: {' '.join(str(failure).split())}",
            "correct the file at that place",
        ) from failure


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
