# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.module_utils import evidence as collector
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Layout,
    Limits,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import memory
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from rich.console import Console
from rich.progress import Progress

from apiary import ssh
from apiary.inputs import json_option, load_plan
from apiary.output import (
    Findings,
    exit_code,
    grid,
    print_document,
    report,
    show,
)
from apiary.pictures import topology_svg, topology_table
from apiary.place_command import place_command
from apiary.plan_commands import diff, explain, plan, render
from apiary.schemas import NAMES, schema


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
@click.option(
    "--timeout",
    default=15.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds to connect.",
)
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
            # A host's name is no path.
            path = Path(out) / f"{re.sub(r'[^A-Za-z0-9._@:-]', '_', result.host)}.json"
            write_text(path, dumps(result.bundle))
            files[result.host] = str(path)
    findings = [finding for failure in ssh.failures(results) for finding in failure.findings]
    if as_json:
        print_document({"schema": "apiary.probe/v1", "files": files})
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
    placement: Placement | None = load_plan(plan_file).placement if plan_file else None
    findings: list[Finding] = []
    topologies: list[Topology] = []
    for name in captures:
        found = read(read_text(name), name)
        findings += found.findings
        topologies.append(found)
        if not as_json:
            show(topology_table(found, placement))
        if svg:
            target = svg if len(captures) == 1 else f"{Path(svg).with_suffix('')}-{found.host}.svg"
            write_text(Path(target), topology_svg(found, placement))
    if as_json:
        # One capture is the document; several are a list of them.
        print_document(topologies[0] if len(topologies) == 1 else topologies)
    report(findings, as_json)
    return exit_code(findings)


@cli.command()
@click.argument("config_json")
@click.option(
    "--tp", type=click.IntRange(1), help="Also the memory of an engine of this many GPUs."
)
@click.option("--ep", is_flag=True, help="With expert parallelism (EP = TP).")
@click.option("--gpu", default="MI325X", show_default=True, help="The GPU, for its memory.")
@click.option("--kv-cache-dtype", default="auto", show_default=True)
@click.option("--max-model-len", type=click.IntRange(1), help="Tokens of the longest sequence.")
@json_option
def model(
    config_json: str,
    tp: int | None,
    ep: bool,
    gpu: str,
    kv_cache_dtype: str,
    max_model_len: int | None,
    as_json: bool,
) -> int:
    """Read a model's architecture, and what it takes up, from its Hugging Face config.json.

    \b
    apiary model config.json --tp 4 --ep --kv-cache-dtype fp8
    """
    architecture = read_config(read_text(config_json), config_json)
    if tp:
        layout = Layout(tensor_parallel_size=tp, expert_parallel=ep)
        limits = Limits(max_model_len=max_model_len, kv_cache_dtype=kv_cache_dtype)
        needs = memory(architecture, layout, limits, _vram_bytes(gpu))
        architecture = dataclasses.replace(
            architecture, memory=needs, findings=(*architecture.findings, *needs.findings)
        )
    if as_json:
        print_document(architecture)
    else:
        rows = [
            (item.name, str(getattr(architecture, item.name)))
            for item in dataclasses.fields(architecture)
            if item.name not in ("details", "findings", "memory")
            and getattr(architecture, item.name) is not None
        ]
        if architecture.memory is not None:
            rows += [
                (item.name, str(getattr(architecture.memory, item.name)))
                for item in dataclasses.fields(architecture.memory)
                if item.name != "findings"
            ]
        show(grid(config_json, ("field", "value"), rows))
    report(architecture.findings, as_json)
    return exit_code(architecture.findings)


@cli.command(name="schema")
@click.argument("name", type=click.Choice(NAMES))
@json_option
def schema_(name: str, as_json: bool) -> int:
    """Print the JSON Schema of a document."""
    del as_json  # a schema is JSON either way
    click.echo(json.dumps(schema(name), indent=2))
    return 0


def _vram_bytes(gpu: str) -> int:
    """Return the memory of a GPU that knowledge has; anything else is wrong usage."""
    models = knowledge("gpus.yml")["models"]
    if gpu not in models or "vram_gib" not in models[gpu]:
        raise click.BadParameter(f"{gpu!r} is not one of {', '.join(models)}", param_hint="--gpu")
    return int(models[gpu]["vram_gib"]) << 30


for command in (place_command, plan, explain, diff, render):
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
