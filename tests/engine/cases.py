# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands put to the judge, each with what Apiary says about it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    Limits,
    ModelSpec,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import facts
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.command import read_command
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import as_loaded
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import resolve_version
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import flags_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.cache import groups, pages
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.weights import (
    by_module,
    weights_bytes,
)

from engine.environment import ROOT
from engine.models import Model

GOLDEN = ROOT / "tests" / "golden" / "recipes"
# TP and expert parallelism; what a model has no experts for, or cannot be split by, is refused.
LAYOUTS = ((8, False), (8, True), (4, False), (4, True), (2, False), (1, False), (3, False))
SMALL_LAYOUTS = ((8, True), (8, False), (4, False))
WHOLE_LAYOUTS = (8, 4)
KV_DTYPES = ("auto", "auto", "fp8", "fp8", "bfloat16", "fp8_e5m2")
CONTEXTS = (None, None, 8192, 32768)
AITER_OFF = 6  # every sixth


@dataclass(frozen=True)
class Case:
    """One command. ``refused`` has the rules that refuse it, with the stage each one names.

    ``backend`` is the attention backend that the recipe says vLLM will choose; None where it does
    not say. ``memory`` are Apiary's bytes on a GPU of a model that is built whole: weights, and KV
    cache by kind of layer as inside/memory.py has them; None in it is not known. ``kind`` names the
    model's class and quantization.
    """

    id: str
    gpu: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    backend: str | None = None
    refused: tuple[tuple[str, str | None], ...] = ()
    memory: Mapping[str, float | None] | None = None
    kind: str = ""


@dataclass(frozen=True)
class Mistake:
    """What an operator may ask for and had better not; or what looks odd and is right."""

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    size: int = 8
    expert_parallel: bool = False
    nodes: int = 1  # with as many pipeline stages
    until: str | None = None  # the last release that has it


OLD_NAME = "VLLM_ATTENTION_BACKEND"  # of the attention-backend flag

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
MISTAKES = (
    Mistake(args={"no-such-flag": 1}),
    Mistake(args={"num-scheduler-steps": 10}),
    Mistake(args={"swap-space": 4}),
    Mistake(args={"disable-log-requests": True}),
    Mistake(args={"block-size": 1}),
    Mistake(args={"block-size": 16}),
    Mistake(args={"block-size": 64}),
    Mistake(args={"block-size": 1}, env={"VLLM_ROCM_USE_AITER": 0}),
    Mistake(args={"block-size": 7}),
    Mistake(env={OLD_NAME: "FLASHINFER"}, until="0.14.1"),
    Mistake(args={"attention-backend": "NO_SUCH"}),
    Mistake(args={"attention-backend": "TRITON_ATTN"}),
    Mistake(args={"attention-backend": "TRITON_MLA"}),
    Mistake(args={"attention-backend": "ROCM_AITER_FA"}),
    Mistake(args={"attention-backend": "ROCM_AITER_MLA"}),
    Mistake(args={"attention-backend": "FLASHINFER"}),
    Mistake({"attention-backend": "TRITON_ATTN"}, {OLD_NAME: "TRITON_ATTN"}, until="0.14.1"),
    Mistake({"attention-backend": "TRITON_ATTN", "attention-config": {"backend": "TRITON_ATTN"}}),
    Mistake(args={"quantization": "no_such"}),
    Mistake(args={"quantization": "fp8"}),
    Mistake(args={"quantization": "awq"}),
    Mistake(args={"quantization": "ptpc_fp8"}),
    Mistake(args={"quantization": "fp8_per_channel"}),
    Mistake(args={"quantization": "fp8_per_tensor"}),
    Mistake(args={"compilation-config": {"full_cuda_graph": False}}),
    Mistake(
        {
            "max-cudagraph-capture-size": 256,
            "compilation-config": {"max_cudagraph_capture_size": 512},
        }
    ),
    Mistake(args={"compilation-config": {"cudagraph_mode": "NO_SUCH"}}),
    Mistake(args={"compilation-config": {"cudagraph_mode": "PIECEWISE"}}),
    Mistake(args={"kv-offloading-size": 64}),
    Mistake(args={"quantization": "online"}),
    Mistake(args={"quantization": "gguf"}),
    Mistake(args={"enable-eplb": True}),
    Mistake(args={"engram-config": {"cpu_offload": False}}),
    Mistake(args={"enable-chunked-prefill": False}, limits={"max_num_batched_tokens": 1024}),
    Mistake(args={"all2all-backend": "mori"}, expert_parallel=True),
    Mistake(env={"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "FP8"}),
    Mistake(env={"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "INT4"}),
    Mistake(env={"VLLM_ROCM_USE_AITER_MLA": 0}),
    Mistake(env={"VLLM_ROCM_USE_AITER_MHA": 0}),
    Mistake(limits={"kv_cache_dtype": "fp8_e5m2"}, expert_parallel=True),
    Mistake(limits={"kv_cache_dtype": "no_such"}),
    Mistake(limits={"kv_cache_dtype": "fp8_ds_mla"}),
    Mistake(limits={"kv_cache_dtype": "fp8_inc"}),
    Mistake(limits={"kv_cache_dtype": "float16"}),
    Mistake(limits={"max_model_len": 100_000_000}),
    Mistake(limits={"max_num_seqs": 4096, "max_num_batched_tokens": 2048}),
    Mistake(limits={"max_num_batched_tokens": 1024, "max_model_len": 8192}),
    Mistake(size=16),
    Mistake(size=5),
    Mistake(size=6),
)
TRUSTED = {"trust-remote-code": True}
PARTS_OF_BLOCKS = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"  # 1,536 columns of an expert
# Not built: they hold no more than a refusal looks at, or are built under their published name.
NOT_WHOLE = ("odd/new-class", "odd/code-beside", "odd/later-class", "odd/other-gpus")
# What a model is built whole with, where not only as planned: a word, flags and variables.
PLANNED: tuple[str, dict[str, Any], dict[str, str]] = ("", {}, {})
AITER, TRITON = ((name, {"moe-backend": name}, {}) for name in ("aiter", "triton"))
AITER_LESS = ("AITER off", {}, {"VLLM_ROCM_USE_AITER": "0"})
# Layers with a window keep every token then.
MANAGER_LESS = ("no hybrid manager", {"disable-hybrid-kv-cache-manager": True}, {})
ON_GPUS = ("tables on GPUs", {"engram-config": {"cpu_offload": False}}, {})
NAMED = {
    PARTS_OF_BLOCKS: (PLANNED, AITER, TRITON),
    "odd/narrow-experts": (PLANNED, TRITON),
    "deepseek-ai/DeepSeek-V4-Pro": (PLANNED, AITER_LESS),
    "deepseek-ai/DeepSeek-V4.1-Flash": (PLANNED, ON_GPUS),
}
ODD = (
    ("odd/sinks", Mistake()),
    ("odd/sinks", Mistake(args=MANAGER_LESS[1])),
    ("odd/sinks", Mistake(env={OLD_NAME: "ROCM_AITER_FA"}, until="0.14.1")),
    ("odd/sinks", Mistake(args={"attention-backend": "ROCM_AITER_FA"})),
    (
        "odd/hybrid",
        Mistake(limits={"max_num_seqs": 1024, "gpu_memory_utilization": 0.65}, size=1),
    ),
    ("odd/dense-mla", Mistake()),
    ("odd/dense-mla", Mistake(args={"attention-backend": "TRITON_MLA", "block-size": 1})),
    (
        "odd/dense-mla",
        Mistake(args={"block-size": 1}, env={OLD_NAME: "TRITON_MLA"}, until="0.14.1"),
    ),
    ("odd/dense-mla", Mistake(env={"VLLM_ROCM_USE_AITER_MLA": 1}, size=4)),
    ("odd/200-mla-heads", Mistake(env={"VLLM_ROCM_USE_AITER_MLA": 1}, size=8)),
    ("odd/200-mla-heads", Mistake(env={"VLLM_ROCM_USE_AITER_MLA": 1}, size=1)),
    ("odd/200-mla-heads-fp8", Mistake()),
    ("odd/10-kv-heads", Mistake()),
    ("odd/10-kv-heads", Mistake(size=5)),
    ("odd/odd-ffn", Mistake()),
    ("odd/odd-experts", Mistake()),
    ("odd/narrow-experts", Mistake(size=8)),
    ("odd/narrow-experts", Mistake(env={"VLLM_ROCM_USE_AITER_MOE": 0}, size=8)),
    ("odd/narrow-experts", Mistake(args={"moe-backend": "triton"}, size=8)),
    ("odd/compressed-blocks", Mistake(size=8)),
    ("odd/compressed-blocks", Mistake(env={"VLLM_ROCM_USE_AITER_MOE": 0}, size=8)),
    (PARTS_OF_BLOCKS, Mistake(size=8)),
    (PARTS_OF_BLOCKS, Mistake(env={"VLLM_ROCM_USE_AITER_MOE": 0}, size=8)),
    (PARTS_OF_BLOCKS, Mistake(args={"moe-backend": "aiter"}, size=8)),
    (PARTS_OF_BLOCKS, Mistake(args={"moe-backend": "triton"}, size=8)),
    ("odd/fp8-vision", Mistake(args={"mm-encoder-tp-mode": "weights"}, expert_parallel=True)),
    ("odd/fp8-vision", Mistake(args={"mm-encoder-tp-mode": "data"}, expert_parallel=True)),
    ("odd/int8-experts", Mistake()),
    ("odd/fbgemm-fp8", Mistake()),
    ("odd/fbgemm-fp8", Mistake(args={"allow-deprecated-quantization": None})),
    ("odd/narrow-values", Mistake(args=TRUSTED)),
    ("odd/new-class", Mistake(until="0.20.2")),
    ("odd/later-class", Mistake(until="0.27.1")),
    ("odd/other-gpus", Mistake()),
    ("odd/no-gate", Mistake(env={"VLLM_ROCM_USE_AITER_MOE": 1})),
    ("odd/four-mamba-groups", Mistake()),
    ("odd/own-configuration", Mistake()),
    ("odd/code-beside", Mistake()),
    ("odd/w4a16", Mistake()),
    ("odd/w4a16", Mistake(limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("nvidia/Llama-3.1-70B-Instruct-FP8", Mistake(limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("nvidia/Kimi-K2.5-NVFP4", Mistake(TRUSTED, limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("odd/nvfp4", Mistake(TRUSTED, limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("odd/mixed-fp8", Mistake(limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("odd/mixed-fp8-cache", Mistake(limits={"kv_cache_dtype": "fp8_e5m2"})),
    ("odd/mxfp4-situ", Mistake()),
    ("odd/mxfp4-situ", Mistake(env={"VLLM_ROCM_USE_AITER_MOE": 0})),
    ("moonshotai/Kimi-K3", Mistake(TRUSTED)),
    ("odd/glm-tower", Mistake(args={"mm-encoder-tp-mode": "weights"})),
    ("odd/padded-experts", Mistake()),
    ("odd/padded-experts", Mistake(expert_parallel=True)),
    ("odd/padded-experts", Mistake(limits={"kv_cache_dtype": "fp8"})),
    ("odd/padded-experts", Mistake(limits={"kv_cache_dtype": "fp8"}, size=2)),
    ("odd/padded-experts", Mistake(args={"block-size": 1}, size=2)),
    ("odd/padded-experts", Mistake(args={"block-size": 1}, size=8)),
    ("odd/padded-experts", Mistake(env={"VLLM_ROCM_USE_AITER_FP4BMM": 1}, size=2)),
    ("odd/padded-experts", Mistake(args={"kv-offloading-size": 64}, size=2)),
    ("odd/padded-experts", Mistake(args={"speculative-config": NGRAM}, expert_parallel=True)),
    ("odd/nvfp4-clamped", Mistake()),
    ("odd/compressed-cache", Mistake()),
    ("odd/compressed-cache", Mistake(limits={"kv_cache_dtype": "bfloat16"})),
    ("odd/hf-tower", Mistake()),
    ("odd/no-tables", Mistake(limits={"kv_cache_dtype": "bfloat16"})),
    ("odd/no-tables", Mistake(limits={"kv_cache_dtype": "fp8_e4m3"})),
    (
        "odd/10-kv-heads",
        Mistake(args={"distributed-executor-backend": "ray"}, size=2, nodes=2),
    ),
)


def golden(version: str, models: Mapping[str, Model]) -> Iterator[Case]:
    """Yield the golden recipes of a version, each with its model's directory in place."""
    for path in sorted(GOLDEN.glob("*.json")):
        recipe = json.loads(path.read_text(encoding="utf-8"))
        argv = list(recipe["argv"])
        name = argv[argv.index("--served-model-name") + 1]
        if recipe["version"] != version or name not in models:
            continue
        argv[1] = str(models[name].directory)
        backend = recipe.get("attention_backend")
        yield Case(f"golden {path.stem}", "MI325X", tuple(argv), recipe["env"], backend)


def generated(
    version: str,
    models: Iterable[Model],
    gpu: str,
    count: int,
    layouts: Any = LAYOUTS,
    seed: str | None = None,
) -> Iterator[Case]:
    """Yield ``count`` draws of profile, limits and switches for each model and layout.

    They are other ones for another ``seed``, which is the release unless it is given.
    """
    draw = random.Random(seed or version)
    names = (None, *facts.names())
    published = [model for model in models if not model.name.startswith("odd/")]
    for number, (model, (size, expert_parallel), _) in enumerate(
        itertools.product(published, layouts, range(count))
    ):
        profile, context = draw.choice(names), draw.choice(CONTEXTS)
        kv_dtype = draw.choice(KV_DTYPES)
        if not model.fits(version):
            continue
        off = {"VLLM_ROCM_USE_AITER": "0"} if number % AITER_OFF == AITER_OFF - 1 else {}
        words = [f"TP{size}", *(["EP"] if expert_parallel else []), profile or "no profile"]
        words += [f"KV {kv_dtype}", f"context {context}", *(["AITER off"] if off else [])]
        yield from _assessed(
            f"{model.name} {' '.join(words)}",
            model,
            gpu,
            _deployment(
                model,
                version,
                Layout(size, 1, expert_parallel),
                Limits(kv_cache_dtype=kv_dtype, max_model_len=context),
                env=off,
                profile=profile,
            ),
        )


def measured(
    version: str, models: Iterable[Model], gpu: str, layouts: Any = WHOLE_LAYOUTS
) -> Iterator[Case]:
    """Yield each model whole, so that vLLM's own tensors say how much memory it takes.

    Experts that tensor parallelism cannot split are left whole.
    """
    known = resolve_version(version, None).version
    asked = (
        (model, size, variant)
        for model, size in itertools.product(models, layouts)
        if model.name not in NOT_WHOLE
        for variant in (*NAMED.get(model.name, (PLANNED,)), *_without_manager(model))
    )
    for model, size, (word, named, env) in asked:
        code = (model.architecture.details or {}).get("remote_code")
        yes = {"trust-remote-code": True} if code else {}
        for whole_experts in (False, True):
            layout = Layout(size, 1, whole_experts)
            words = [f"TP{size}", *(["EP"] if whole_experts else []), *([word] if word else [])]
            (case, *_none) = _assessed(
                f"{model.name} {' '.join(words)} whole",
                model,
                gpu,
                _deployment(model, version, layout, Limits(), named | yes, env),
            )
            if not case.refused:
                command = read_command(shlex.join(("vllm", *case.argv)), known)
                flags = flags_of(command, known)
                loaded = as_loaded(model.architecture, known, gpu, case.env, flags)
                memory = _memory(loaded, layout)
                yield dataclasses.replace(case, memory=memory)
                break


def _without_manager(model: Model) -> tuple[Any, ...]:
    counts = (model.architecture.details or {}).get("attention_layers") or {}
    both = counts.get("full") and counts.get("sliding") and not counts.get("linear")
    return (MANAGER_LESS,) if both else ()


def _memory(architecture: Architecture, layout: Layout) -> dict[str, float | None]:
    layers = groups(architecture, layout, "auto")
    sizes: dict[str, float | None] = dict.fromkeys(("full", "sliding", "linear"), 0)
    for group in layers or ():
        sizes[group.kind] += group.all_bytes or group.layers * group.state_bytes
    if layers is None:
        sizes = dict.fromkeys(sizes, None)
    longest = architecture.max_context
    page = pages(architecture, layout, Limits(), longest) if longest else None
    sizes["sequence"] = page.sequence_bytes if page else None
    modules = by_module(architecture, layout)
    host = modules and sum(one.bytes_per_gpu for one in modules if one.sharding == "host")
    return {"weights": weights_bytes(architecture, layout), "host": host, **sizes}


def mistaken(
    version: str, models: Mapping[str, Model], names: Iterable[str], gpu: str, small: bool = False
) -> Iterator[Case]:
    """Yield what operators ask for and a rule may refuse: of the named models, and of odd ones.

    A small set leaves the variables alone: vLLM is imported anew for each environment.
    """
    for name, mistake in (*itertools.product(names, MISTAKES), *ODD):
        model = models.get(name)
        if model is None or (mistake.until and order(version) > order(mistake.until)):
            continue
        if small and mistake.env:
            continue
        size, expert_parallel = mistake.size, mistake.expert_parallel
        asked = {**mistake.args, **mistake.env, **mistake.limits}
        words = [f"{key}={value}" for key, value in asked.items()]
        over = f" over {mistake.nodes} hosts" if mistake.nodes > 1 else ""
        yield from _assessed(
            f"{name} TP{size}{' EP' if expert_parallel else ''}{over} {' '.join(words)}".strip(),
            model,
            gpu,
            _deployment(
                model,
                version,
                Layout(
                    size,
                    1,
                    expert_parallel,
                    pipeline_parallel_size=mistake.nodes,
                    nodes=mistake.nodes,
                ),
                Limits(**mistake.limits),
                args=mistake.args,
                env=mistake.env,
            ),
        )


def canaries(model: Model, gpu: str, env: Mapping[str, str]) -> tuple[Case, ...]:
    """Return cases about which Apiary is made to be wrong: the judge must say so each time."""
    serve = ("serve", str(model.directory))
    refused = (("CANARY", "config"),)
    return (
        Case("canary: a flag that is nobody's", gpu, (*serve, "--no-such-flag"), env),
        Case("canary: heads that 3 does not divide", gpu, (*serve, "-tp", "3"), env),
        Case("canary: a wrong backend", gpu, serve, env, backend="TRITON_MLA"),
        Case("canary: refused for nothing", gpu, serve, env, refused=refused),
    )


def distinct(cases: Iterable[Case]) -> list[Case]:
    """Return the cases without those that ask vLLM the same once more; a whole one is kept."""
    first: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        asks = (case.gpu, case.argv, tuple(sorted(case.env.items())))
        if first.setdefault(asks, case).memory is None and case.memory:
            first[asks] = case
    return list(first.values())


def _deployment(
    model: Model,
    version: str,
    layout: Layout,
    limits: Limits,
    args: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> Deployment:
    return Deployment(
        name="judged",
        model=ModelSpec(model.name, str(model.directory)),
        engine=EngineSpec(version, args=dict(args or {}), env=dict(env or {})),
        layout=layout,
        limits=limits,
        profile=profile,
    )


def _assessed(name: str, model: Model, gpu: str, deployment: Deployment) -> Iterator[Case]:
    try:
        said = assess(model.architecture, deployment, gpu, deployment.base_port)
    except ApiaryError:
        return  # no deployment at all, so no command either
    yield Case(
        name,
        gpu,
        said.recipe.argv,
        said.recipe.env,
        said.recipe.attention_backend,
        tuple((refused.rule, refused.stage) for refused in said.refused),
        kind=f"{(model.architecture.details or {}).get('class')} {model.architecture.quantization}",
    )
