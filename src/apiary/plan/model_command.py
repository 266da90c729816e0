# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary model`: a model's architecture, and the memory of a layout."""

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
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    known,
    read_json,
)
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
from apiary.app.output import exit_code, grid, print_document, report, show

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
