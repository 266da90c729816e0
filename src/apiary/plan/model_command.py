# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary model` and `apiary advise`: what a model is and takes up, and known defects."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.checkpoint import read_checkpoint
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    Advisory,
    advisories,
    release_facts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import Fact
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known, read_json
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import (
    GIB,
    memory,
    quantized_online,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import (
    Architecture,
    Memory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.weights import Index, read_index

from apiary.app.inputs import CONFIG, json_option, read_output
from apiary.app.output import echo, exit_code, grid, print_document, report, show

_INDEX = "model.safetensors.index.json"
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_LISTED = 4  # of longer lists only how many


@click.command()
@click.argument("config_json", type=click.Path())
@click.option(
    "--tp", type=click.IntRange(1), help="Also the memory of an engine of this many GPUs."
)
@click.option("--ep", is_flag=True, help="With expert parallelism (EP = TP).")
@click.option("--replicas", type=click.IntRange(1), default=1, help="Engines on the host.")
@click.option("--gpu", default="MI325X", show_default=True, help="The GPU, for its memory.")
@click.option(
    "--gpu-memory-utilization",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="The share of a GPU that the engine may use.",
)
@click.option("--kv-cache-dtype", default="auto", show_default=True)
@click.option("--quantization", help="Quantize 16-bit weights while they load, as fp8 does.")
@click.option("--max-model-len", type=click.IntRange(1), help="Tokens of the longest sequence.")
@click.option("--max-num-batched-tokens", type=click.IntRange(1), help="Tokens of one step.")
@click.option("--max-num-seqs", type=click.IntRange(1), help="Sequences of one step.")
@click.option(
    "--sequence-length",
    type=click.IntRange(1),
    help="How many sequences of this many tokens fit; else of --max-model-len.",
)
@click.option("--reserve", type=click.FloatRange(0), help="Measured reserve of a GPU, in GiB.")
@click.option(
    "--index", "index_file", type=click.Path(), help=f"The checkpoint's {_INDEX}, for its size."
)
@json_option
def model(
    config_json: str,
    tp: int | None,
    ep: bool,
    replicas: int,
    gpu: str,
    gpu_memory_utilization: float,
    kv_cache_dtype: str,
    quantization: str | None,
    max_model_len: int | None,
    max_num_batched_tokens: int | None,
    max_num_seqs: int | None,
    sequence_length: int | None,
    reserve: float | None,
    index_file: str | None,
    as_json: bool,
) -> int:
    """Read a model's architecture, and what it takes up, from its Hugging Face config.json.

    CONFIG_JSON is that file, a directory with it, or the name of a model that Apiary knows. A
    safetensors index and a hf_quant_config.json beside it are read too.

    \b
    apiary model config.json --tp 4 --ep --replicas 2 --kv-cache-dtype fp8 --sequence-length 8192
    """
    architecture, index = read_model(config_json, index_file)
    if quantization:
        architecture = quantized_online(architecture, quantization)
    if tp:
        layout = Layout(tensor_parallel_size=tp, replicas=replicas, expert_parallel=ep)
        limits = Limits(
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            gpu_memory_utilization=gpu_memory_utilization,
            kv_cache_dtype=kv_cache_dtype,
        )
        measured = None if reserve is None else round(reserve * GIB)
        needs = memory(
            architecture, layout, limits, _vram_bytes(gpu), sequence_length, index, measured
        )
        architecture = dataclasses.replace(
            architecture, memory=needs, findings=(*architecture.findings, *needs.findings)
        )
    if as_json:
        print_document(architecture)
    else:
        show(grid(config_json, ("architecture", ""), _rows(architecture)))
        if architecture.memory is not None:
            engine = f"TP{tp}{f'/EP{tp}' if ep else ''} on {gpu}, {replicas} on the host"
            show(grid(engine, ("memory", ""), _memory_rows(architecture.memory)))
            show(
                grid(
                    "weights",
                    ("module", "split", "parameters", "GiB per GPU"),
                    _module_rows(architecture.memory),
                )
            )
    report(architecture.findings, as_json)
    return exit_code(architecture.findings)


def read_model(name: str, index_file: str | None = None) -> tuple[Architecture, Index | None]:
    """Return the model of a file, directory or known name, and the index that lies with it."""
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
        name = str(path)
    elif not path.is_file() and name != "-" and index_file is None:
        shipped = known(name)
        if shipped is not None:
            return shipped, None
    architecture = read_checkpoint(name, functools.partial(read_output, made=CONFIG))
    if index_file is None and name != "-" and path.with_name(_INDEX).is_file():
        index_file = str(path.with_name(_INDEX))
    if index_file is None:
        return architecture, None
    return architecture, read_index(read_json(read_text(index_file), index_file), index_file)


def _vram_bytes(gpu: str) -> int:
    """Return the memory of a GPU that knowledge has; anything else is wrong usage."""
    sized = {name: model.memory.gib for name, model in gpu_models().items() if model.memory.gib}
    if gpu not in sized:
        raise click.BadParameter(f"{gpu!r} is not one of {', '.join(sized)}", param_hint="--gpu")
    return sized[gpu] << 30


def _rows(architecture: Architecture) -> Iterator[tuple[str, str]]:
    """Yield what is known of a model, by the names of its config.json."""
    data = to_document(architecture)
    details = data.pop("details") or {}
    for name, value in {**data, **details}.items():
        if name not in ("schema", "memory", "findings") and value not in _EMPTY:
            yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        listed = (f"{key} {_text(each)}" for key, each in value.items() if each not in _EMPTY)
        return ", ".join(listed)
    if isinstance(value, list):
        return ", ".join(map(_text, value)) if len(value) <= _LISTED else f"{len(value)} of them"
    return str(value) if isinstance(value, (bool, str)) else f"{value:,}"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.2f} GiB"


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _memory_rows(needs: Memory) -> Iterator[tuple[str, str]]:
    source = {"index": " (by the index)", "index_only": " (the index's, split evenly)"}
    yield (
        "weights per GPU",
        _gib(needs.weights_bytes_per_gpu) + source.get(needs.weights_source or "", ""),
    )
    yield "reserve per GPU", _gib(needs.reserve_bytes_per_gpu)
    yield "KV pool per GPU", _gib(needs.kv_pool_bytes_per_gpu)
    per_token = needs.kv_bytes_per_token_per_gpu
    yield "KV per token and GPU", "unknown" if per_token is None else f"{per_token:,} bytes"
    if needs.state_bytes_per_sequence_per_gpu:
        yield "state per sequence", _gib(needs.state_bytes_per_sequence_per_gpu)
    yield "KV tokens per engine", _count(needs.kv_tokens_per_engine)
    length = needs.sequence_length
    what = f"sequences of {length:,}" if length else "sequences"
    yield f"{what} per engine", _count(needs.max_sequences)
    yield f"{what} per host", _count(needs.max_sequences_per_host)


def _module_rows(needs: Memory) -> Iterator[tuple[str, str, str, str]]:
    for item in needs.modules:
        size = f"{item.bytes_per_gpu / GIB:.3f}"
        yield item.kind, item.sharding, f"{item.parameters:,}", size


@click.command()
@click.option("--engine", "release", required=True, metavar="VERSION", help="Release of vLLM.")
@click.option("--from", "before", metavar="VERSION", help="Also what changes since this one.")
@click.option(
    "--gpu",
    type=click.Choice(list(gpu_models())),
    default="MI325X",
    show_default=True,
    help="The GPU.",
)
@click.option("--model", "config_json", type=click.Path(), help="Only what concerns this model.")
@click.option("--aiter", metavar="VERSION", help="AITER, where it is not the official image's.")
@click.option("--rocm", metavar="VERSION", help="ROCm, where it is not the official image's.")
@json_option
def advise(
    release: str,
    before: str | None,
    gpu: str,
    config_json: str | None,
    aiter: str | None,
    rocm: str | None,
    as_json: bool,
) -> int:
    """List what is known to go wrong with a release on a GPU: what to read before an upgrade.

    Each with what it hangs on, what to do, and the thread that says so. --model takes a config.json
    or a directory with one, or the name of a model that Apiary knows.

    \b
    apiary advise --engine 0.33.0 --gpu MI325X
    apiary advise --engine 0.33.0 --from 0.28.0 --model config.json
    """
    architecture = read_model(config_json)[0] if config_json else None
    given = {name: text for name, text in (("aiter", aiter), ("rocm", rocm)) if text}
    facts = {**release_facts(release, gpu, architecture), **given}
    known = _possible(facts)
    changes = {}
    if before:
        earlier = _possible(release_facts(before, gpu, architecture))
        changes["brings"] = [name for name in known if name not in earlier]
        changes["ends"] = [name for name in earlier if name not in known]
    if as_json:
        about = {name: facts.get(name) for name in ("release", "gpu", "aiter", "rocm")}
        document = {"schema": "apiary.advisories/v1", **about, "from": before, **changes}
        print_document({**document, "advisories": [_row(*each) for each in known.values()]})
        return 0
    stack = f"AITER {facts.get('aiter', 'unknown')}, ROCm {facts.get('rocm', 'unknown')}"
    title = f"vLLM {release} on {gpu} ({stack})"
    columns = ("advisory", "what happens", "when", "what to do")
    show(grid(title, columns, (_cells(*each) for each in known.values())))
    for name, (advisory, _hangs_on) in known.items():
        echo(f"{name}: {advisory.source}")
    for name, ids in changes.items():
        echo(f"the upgrade from {before} {name}: {', '.join(ids) or 'none'}")
    return 0


def _possible(facts: dict[str, Fact]) -> dict[str, tuple[Advisory, str]]:
    """Return the advisories that may apply, by id, each with what it hangs on, in words."""
    pairs = ((advisory, advisory.possible(facts)) for advisory in advisories())
    return {advisory.id: (advisory, words) for advisory, words in pairs if words is not None}


def _row(advisory: Advisory, hangs_on: str) -> dict[str, Any]:
    names = ("id", "symptom", "says", "proof", "read", "fixed", "avoid", "source", "severity")
    fields = {name: getattr(advisory, name) for name in names}
    return {**fields, "versions": str(advisory.versions), "when": hangs_on, "do": advisory.remedy}


def _cells(advisory: Advisory, hangs_on: str) -> tuple[str, ...]:
    what = f"{advisory.effect['message']} ({advisory.reason})"
    return advisory.id, what, hangs_on or "always", advisory.remedy
