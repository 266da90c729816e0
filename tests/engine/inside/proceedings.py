# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM does with a command before it reads the first weight, step by step, as vLLM does it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import logging
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SECONDS = 300  # a case that hangs is ended; a busy machine takes long
NEEDED = (
    "vllm.engine.arg_utils",
    "vllm.entrypoints.cli.serve",
    "vllm.model_executor.model_loader.utils",
)
SELECTION = ("get_attn_backend", "get_attn_backend_cls")
WORDS = 1200  # of an error; pydantic repeats its input
FRAMES = 4


class RejectedError(Exception):
    """The parser's own words."""


def prepare() -> None:
    """Import what every case needs, and have model classes looked at in this process."""
    for name in NEEDED:
        importlib.import_module(name)
    from vllm.model_executor.models import registry

    # A process of its own would look at them on this machine, not on the node.
    registry._run_in_subprocess = lambda function: function()
    _parser()


def learn(modules: list[str]) -> None:
    """Import what a case had to import, so that the next one finds it."""
    for name in modules:
        with contextlib.suppress(Exception):  # then each case imports it for itself
            importlib.import_module(name)


def opinion(case: dict[str, Any]) -> dict[str, Any]:
    """Return how far the command gets.

    `stage` is where vLLM refuses it, with its `error` and the calls `at` that place: "parser",
    "config", "backend" (the choice of an attention backend) or "load" (layers and caches are laid
    out); else "accepted". `backends` are the layers' attention backends by AttentionBackendEnum's
    names, `memory` what the first rank of a `whole` model holds (memory.py), `unknown_env` the
    variables that this version does not know, `deprecated` what it said of that kind.
    """
    signal.alarm(SECONDS)
    before = set(sys.modules)
    log = _Log()
    logging.getLogger("vllm").addHandler(log)
    found: dict[str, Any] = {"unknown_env": _unknown_env(case["env"])}
    stage = "parser"
    try:
        arguments = _parse(case["argv"])
        stage = "config"
        config = _configure(arguments)
        stage = "load"
        model, layers = _build(config, case.get("whole", False))
        found["backends"] = sorted({_name(backend) for backend in layers.values()} - {""})
        _lay_out_caches(config, layers)
        if case.get("whole"):
            found["memory"] = _memory(config, model)
        stage = "accepted"
    except BaseException as problem:  # SystemExit too: whatever stops vLLM is its answer
        frames = traceback.extract_tb(problem.__traceback__)
        if stage == "load" and any(frame.name in SELECTION for frame in frames):
            stage = "backend"
        kind = "" if isinstance(problem, RejectedError) else f"{type(problem).__name__}: "
        found["error"] = " ".join(f"{kind}{problem}".split())[:WORDS]
        found["at"] = [_place(frame) for frame in frames[-FRAMES:]]
    loaded = [name for name in sys.modules if name not in before]
    return found | {
        "stage": stage,
        "deprecated": log.deprecated,
        "imported": [name for name in loaded if name.startswith(("vllm.", "transformers."))],
    }


def classes() -> dict[str, Any]:
    """Return the registered classes that the release's own code refuses to import on this node.

    `classes` has the reason by the name that checkpoints use. One that only lacks another package
    (an image may have it) is none of them, and no drafting model's class is looked at.
    """
    from vllm.model_executor.models import registry

    found = {}
    for name, registered in registry.ModelRegistry.models.items():
        if name in registry._SPECULATIVE_DECODING_MODELS:
            continue
        try:
            registered.load_model_cls()
        except Exception as problem:
            lacking = getattr(problem, "name", None) or "vllm"
            if lacking.startswith("vllm"):
                found[name] = " ".join(f"{type(problem).__name__}: {problem}".split())[:WORDS]
    return {"classes": found}


class _Log(logging.Handler):
    """Keeps what vLLM calls deprecated."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.deprecated: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "deprecated" in text:
            self.deprecated.append(text[:300])


def _place(frame: traceback.FrameSummary) -> str:
    parts = Path(frame.filename).parts
    if "vllm" in parts:
        parts = parts[parts.index("vllm") :]
    return f"{Path(*parts)}:{frame.lineno} {frame.name}"


def _unknown_env(env: dict[str, str]) -> list[str]:
    from vllm import envs

    return sorted(
        {name for name in env if name.startswith("VLLM_")} - set(envs.environment_variables)
    )


@functools.cache
def _parser() -> tuple[Any, Any]:
    """Return vLLM's parser with the subcommand; the same for all cases of an environment."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    root = FlexibleArgumentParser(prog="vllm")
    command = ServeSubcommand()
    command.subparser_init(root.add_subparsers(dest="subparser"))
    return root, command


def _parse(argv: list[str]) -> Any:
    root, command = _parser()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = root.parse_args(argv)
            command.validate(arguments)
    except SystemExit:
        raise RejectedError(said.getvalue().rpartition("error:")[2]) from None
    return arguments


def _configure(arguments: Any) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    if arguments.model_tag is not None:
        arguments.model = arguments.model_tag
    engine = AsyncEngineArgs.from_cli_args(arguments)
    return engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def _build(config: Any, whole: bool) -> tuple[Any, dict[Any, type]]:
    """Build the model as the first worker does; return it, and attention layers with backends."""
    import shapes
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model

    with contextlib.suppress(ImportError):  # of newer versions
        from vllm.v1.worker.workspace import init_workspace_manager

        init_workspace_manager(torch.device("meta"))
    shapes.form_groups(config.parallel_config)
    if not whole:
        shapes.cut(config.model_config.hf_config)
    torch.set_default_dtype(config.model_config.dtype)
    with torch.device("meta"), shapes.ShapesOnly():
        model = initialize_model(config)
    return model, {
        layer: layer.get_attn_backend()
        for layer in config.compilation_config.static_forward_context.values()
        if hasattr(layer, "get_attn_backend")
    }


def _memory(config: Any, model: Any) -> dict[str, float | None]:
    import memory
    import shapes
    from vllm.config import set_current_vllm_config

    layers = config.compilation_config.static_forward_context
    with set_current_vllm_config(config), shapes.ShapesOnly():
        caching = {
            name: layer for name, layer in layers.items() if hasattr(layer, "get_kv_cache_spec")
        }
        return {
            **memory.weights(model),
            **memory.caches(config, caching),
            "sequence": memory.sequence(config, caching),
        }


def _name(backend: type) -> str:
    """Return a backend's name in AttentionBackendEnum; "" for linear attention and indexers."""
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum
    except ImportError:
        from vllm.attention.backends.registry import AttentionBackendEnum

    names = {member.value: member.name for member in AttentionBackendEnum if member.value}
    # Chunked and sliding attention are classes made from the backend that they use.
    paths = (f"{base.__module__}.{base.__qualname__}" for base in backend.__mro__)
    return next((names[path] for path in paths if path in names), "")


def _lay_out_caches(config: Any, layers: dict[Any, type]) -> None:
    """Lay out each layer's KV cache as the worker does once it knows its memory."""
    import shapes
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.kv_cache_interface import AttentionSpec

    with set_current_vllm_config(config), shapes.ShapesOnly():
        # A platform of an older version has None for what it does not know.
        update_block_size = getattr(current_platform, "update_block_size_for_backend", None)
        if update_block_size:
            update_block_size(config)
        for layer, backend in layers.items():
            spec = layer.get_kv_cache_spec(config)
            if not isinstance(spec, AttentionSpec):
                continue
            block = _kernel_block(spec.block_size, backend)
            if hasattr(backend, "get_kv_cache_shape"):
                backend.get_kv_cache_shape(
                    spec.block_size // block,
                    block,
                    spec.num_kv_heads,
                    spec.head_size,
                    cache_dtype_str=config.cache_config.cache_dtype,
                )


def _kernel_block(block: int, backend: type) -> int:
    """Return the part of a block that the backend's kernel takes at once; ValueError if none."""
    try:
        from vllm.v1.worker.utils import select_common_block_size as select
    except ImportError:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        select = GPUModelRunner.select_common_block_size
    if "backends" in inspect.signature(select).parameters:
        return int(select(block, [backend]))
    return int(select(block, [SimpleNamespace(backend=backend)]))  # an AttentionGroup
