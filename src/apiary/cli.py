# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import dataclasses
import json

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Layout,
    Limits,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import memory

from apiary.inputs import json_option
from apiary.output import (
    Findings,
    exit_code,
    grid,
    print_document,
    report,
    show,
)
from apiary.place_command import place_command
from apiary.plan_commands import diff, explain, plan, render
from apiary.probe_command import probe
from apiary.schemas import NAMES, schema
from apiary.topology_commands import topology


@click.group(cls=Findings, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="apiary")
def cli() -> None:
    """From bare AMD Instinct hosts to serving vLLM replicas.

    Exit code 0: fine; 1: a finding of severity error; 2: wrong usage.
    """


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


for command in (probe, topology, place_command, plan, explain, diff, render):
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
