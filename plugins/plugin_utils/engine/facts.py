# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rules ask about: facts derived from architecture, deployment, GPU and version.

knowledge/vllm/facts.yml says of each what it is.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..deployment import Deployment, EngineSpec
from ..documents import knowledge
from ..gpus import gpu_facts
from ..model.cache import pages
from ..model.memory import GIB, memory
from ..model.types import Architecture
from .conditions import Fact, holding, order, parse_version, read_span
from .features import features
from .flags import literals, pins, versions
from .splits import splits


@dataclass(frozen=True)
class NodeRank:
    """The place of an engine's process among those on ``nodes`` hosts, and where they all meet."""

    rank: int = 0
    master_address: str = "127.0.0.1"
    master_port: int = 0


ALONE = NodeRank()
_OF_MODEL = ("family", "attention", "heads", "kv_heads", "head_dim", "max_context")
_OF_DETAILS = ("activation", "dtype", "sinks", "moe_intermediate_size")
_OF_LAYOUT = ("tensor_parallel_size", "expert_parallel", "pipeline_parallel_size", "nodes")
_RECURRENT = ("hybrid", "linear")


def facts(
    architecture: Architecture,
    deployment: Deployment,
    gpu: str | None,
    version: str,
    port: int,
    node: NodeRank = ALONE,
) -> dict[str, Fact]:
    """Return the facts of one engine by name; None is unknown. ``version`` is a known one."""
    limits, layout = deployment.limits, deployment.decided
    own = deployment.engine.version
    result: dict[str, Fact] = {
        "version": version,
        "release": own if parse_version(own) else version,
        **stack(deployment.engine),
        "gpu": gpu,
        "gfx": gpu_facts(gpu).gfx or None,
        "rccl_channels": gpu_facts(gpu).engine.rccl_channels if gpu else None,
        "model_name": deployment.model.name,
        "listen_address": deployment.listen_address,
        "port": port,
        **{name: getattr(layout, name) for name in _OF_LAYOUT},
        "gpus_per_node": layout.gpus // layout.nodes,
        "tp_beyond_node": layout.tensor_parallel_size - layout.gpus // layout.nodes,
        "node_rank": node.rank,
        "master_address": node.master_address,
        "master_port": node.master_port,
        "profile": deployment.profile or "none",
        "profile_steps": steps(deployment.profile),
        "context_capped": limits.max_model_len is not None,
        **_tracing(deployment),
        **model_facts(architecture, version),
        **features(architecture, deployment, version, gpu),
        **splits(architecture, layout),
        **_states(as_loaded(architecture, version, gpu, {}), deployment, gpu),
    }
    for name in (
        *("max_model_len", "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization"),
        *("kv_cache_dtype", "start_timeout_seconds", "drain_timeout_seconds"),
    ):
        result[name] = getattr(limits, name)
    if limits.start_timeout_seconds is None:
        result["start_timeout_seconds"] = knowledge("start.yml")["at_least_seconds"]["value"]
    longest = limits.max_model_len or architecture.max_context
    result |= {
        "longest_sequence": longest,
        "context_excess": _difference(limits.max_model_len, architecture.max_context),
        "context_above_batched_tokens": _difference(longest, limits.max_num_batched_tokens),
        "seqs_above_batched_tokens": _difference(
            limits.max_num_seqs, limits.max_num_batched_tokens
        ),
    }
    result["aiter_mla_heads"] = _aiter_mla_heads(result["heads_per_rank"], version)
    groups, size = result["mamba_groups"], layout.tensor_parallel_size
    result["mamba_groups_remainder"] = (
        groups % size if isinstance(groups, int) and groups > 1 else 0
    )
    return result


def _tracing(deployment: Deployment) -> dict[str, Fact]:
    """Return where spans go; empty texts, which no rule asks about, where there are none."""
    tracing = deployment.tracing
    return {
        "tracing": tracing is not None,
        "tracing_endpoint": tracing.endpoint if tracing else "",
        "tracing_protocol": tracing.protocol if tracing else "",
        "tracing_ratio": tracing.ratio if tracing else 0.0,
        "tracing_service": deployment.name,
    }


def model_facts(architecture: Architecture, version: str) -> dict[str, Fact]:
    """Return the facts of a model alone, in a known version."""
    details, known = architecture.details or {}, knowledge("vllm/models.yml")
    scheme = details.get("quantization") or {}
    quantization = architecture.quantization or (
        None if architecture.details is None or scheme else "none"
    )
    modules = details.get("formula_modules", ())
    parts = [one for one in (scheme, *scheme.get("schemes", ())) if one.get("bits") == 4]
    own_class = known["classes"].get(architecture.model_type)
    model_class = own_class or details.get("class")
    generic = _reaches(version, known["generic"].get(architecture.model_type))
    result = {
        "model_type": architecture.model_type,
        "text_type": details.get("text_type", architecture.model_type),
        "config_format": details.get("config_format", "any"),
        "model_class": model_class,
        "model_class_needed": own_class is not None and not generic,
        "model_class_generic": generic,
        "config_from": _config_from(architecture.model_type, version),
        "remote_code": bool(details.get("remote_code")),
        "gated_experts": details["ffn_matrices"] == 3 if "ffn_matrices" in details else None,
        "mamba_groups": next(
            (item["parts"] for item in modules if item["kind"] == "linear_in_groups"), 0
        ),
        "latent": details.get("kv_lora_rank") is not None,
        "weight_algorithm": scheme.get("algorithm", "none"),
        "checkpoint_kv_dtype": scheme.get("kv_cache", "auto"),
        "first_bits": (scheme.get("schemes") or [{}])[0].get("bits") or 16,
        "scale_bytes": scheme.get("scale_bytes", 2),
        "four_bit_group": min((one.get("group") or 0 for one in parts), default=0),
        "model_class_known": None
        if model_class is None
        else model_class in literals(version, "MODEL_CLASSES"),
        **{name: getattr(architecture, name) for name in _OF_MODEL},
        **{name: details.get(name) for name in _OF_DETAILS},
        "quantization": quantization,
        "sliding_layers": (details.get("attention_layers") or {}).get("sliding"),
        "shared_experts": None
        if architecture.family is None
        else bool(architecture.shared_experts),
    }
    method = quantization
    for entry in holding(known["methods"]["names"], version, result):
        method = entry["is"]
    taken = ("none", *literals(version, "ROCM_QUANTIZATION"))
    return result | {
        "quantization_method": method,
        "quantization_known": None if method is None else method in taken,
    }


def _config_from(model_type: str, version: str) -> str:
    """Return who knows this type's configuration: the release, only code beside it, or unknown."""
    first = knowledge("vllm/models.yml")["configs"].get(model_type)
    if first is None:
        return "unknown"
    return "release" if _reaches(version, first) else "checkpoint"


def _reaches(version: str, first: str | None) -> bool:
    return first not in (None, "never") and order(version) >= order(first)


def _difference(value: int | None, bound: int | None) -> int | None:
    return None if value is None or bound is None else value - bound


def _aiter_mla_heads(per_rank: Fact, version: str) -> bool | None:
    """Return whether AITER's dense MLA kernel takes this many heads a GPU in this version."""
    if not isinstance(per_rank, int):
        return None
    for entry in knowledge("vllm/attention.yml")["aiter_mla_heads"]["versions"]:
        if "until" in entry and order(version) > order(entry["until"]):
            continue
        return bool(
            per_rank in entry.get("counts", ())
            or per_rank < entry.get("below", 0)
            or ("multiple_of" in entry and per_rank % entry["multiple_of"] == 0)
        )
    return None


def _states(architecture: Architecture, deployment: Deployment, gpu: str | None) -> dict[str, Fact]:
    """Return how many sequences a hybrid model's cache has a block of state for, on whole GPUs.

    None where nothing recurs or a size is unknown.
    """
    blocks = _state_blocks(architecture, deployment, gpu)
    requested = deployment.limits.max_num_seqs
    known = blocks is not None and requested is not None
    return {
        "state_blocks": blocks,
        "seqs_open": requested is None,
        "seqs_above_state_blocks": (requested or 0) - (blocks or 0) if known else None,
    }


def _state_blocks(
    architecture: Architecture, deployment: Deployment, gpu: str | None
) -> int | None:
    vram = gpu_facts(gpu).memory.gib if gpu else None
    layout, limits = deployment.decided, deployment.limits
    longest = limits.max_model_len or architecture.max_context
    if architecture.attention not in _RECURRENT or not vram or not longest:
        return None
    pool = memory(architecture, layout, limits, int(vram * GIB)).kv_pool_bytes_per_gpu
    page = pages(architecture, layout, limits, longest)
    if pool is None or page is None or not page.state_blocks:
        return None
    return max(0, pool) // page.block_bytes


def as_loaded(
    architecture: Architecture,
    version: str,
    gpu: str | None,
    env: Mapping[str, str],
    flags: Mapping[str, Fact] | None = None,
) -> Architecture:
    """Return the model as this engine holds it: with experts padded to what its kernels take.

    Its `step` is set where the engine's differs from the newest one's on a large GPU. ``version``
    is a known one. Without a GPU nothing is known of its kernels. ``flags`` are as rules see
    them; with mm_encoder_tp_mode `data` each GPU has the towers whole, with `none` no one.
    """
    details, kernels = {**(architecture.details or {})}, knowledge("vllm/kernels.yml")
    encoder_mode = (flags or {}).get("flag mm_encoder_tp_mode")
    if encoder_mode == "data" and architecture.vision:
        details["vision_sharding"] = "replicated"
    if encoder_mode == "none" and details.get("vision_parameters"):
        details |= {"vision_parameters": 0, "vision_whole": 0}
    known: dict[str, Fact] = {
        **model_facts(architecture, version),
        "gfx": gpu_facts(gpu).gfx if gpu else None,
        "block_size": next(iter((details.get("quantization") or {}).get("block") or ()), None),
        **(flags or {}),
        **{f"env {name}": value for name, value in env.items()},
    }
    for entry in holding(kernels["expert_steps"], version, known) if gpu and details else ():
        details["expert_steps"] = entry["steps"]
        break
    for entry in holding(kernels["whole"], version, known) if details else ():
        details["formula_modules"] = [
            {**one, "sharding": entry["sharding"]} if one["kind"] in entry["kinds"] else one
            for one in details.get("formula_modules", ())
        ]
        if "vision" in entry["kinds"]:
            details["vision_sharding"] = "replicated"
    for mark in ("expert_index", "unused_kv", "wide_values", "windows_ignored"):
        if details and any(holding(kernels[mark], version, known)):
            details[mark] = True
    for entry in holding(kernels["state"], version, known) if details.get("state") else ():
        details["state"] = [
            {**one, "bytes": entry["bytes"]} if one["named"] is entry["named"] else one
            for one in details["state"]
        ]
    if packed := details.get("packed_cache"):
        gfx = known["gfx"] or "gfx942"
        first = order(packed["from"].get(gfx, packed["from"]["gfx942"]))
        if details.get("windows_ignored") or order(version) < first:
            details["cache_unknown"] = True
        own = f"bytes_{gfx}_aiter_{env.get('VLLM_ROCM_USE_AITER', '0')}"
        caches = [{**one, "bytes": one.get(own, one["bytes"])} for one in packed["caches"]]
        details["packed_cache"] = {**packed, "caches": caches}
    more = knowledge("models/memory.yml")["recurrent_state"]["more"].get(details.get("linear_kind"))
    if more and order(version) >= order(more["from"]):
        details["state_blocks"] = more["blocks"]
    if unlike := _step(version, gpu):
        details["step"] = {**knowledge("models/memory.yml")["step"], **unlike}
    same = details == (architecture.details or {})
    return architecture if same else dataclasses.replace(architecture, details=details)


def _step(version: str, gpu: str | None) -> dict[str, int]:
    """Return what the tokens of a step are where not those of the newest on a large GPU."""
    gib = (gpu_facts(gpu).memory.gib if gpu else None) or math.inf
    result: dict[str, int] = {}
    for entry in knowledge("models/memory.yml")["step"]["unlike"]:
        if read_span(entry.get("versions")).covers(version) and gib <= entry.get("gib", math.inf):
            result |= entry["are"]
    return result


_STACK = ("aiter", "rocm")


def stack(engine: EngineSpec) -> dict[str, str | None]:
    """Return `aiter` and `rocm` of an engine; None is unknown."""
    pins = pins_of(engine.version) if _official(engine) else {}
    return {name: getattr(engine, name) or pins.get(name) for name in _STACK}


def pins_of(release: str) -> Mapping[str, str]:
    """Return what upstream's image of a release has; nothing where that is not known."""
    images = knowledge("vllm/images.yml")
    if release not in versions() or order(release) < order(images["from"]):
        return {}
    found = ((name, pins(release).get(name, "")) for name in _STACK)
    texts = {name: images["commits"].get(text, text.removeprefix("v")) for name, text in found}
    return {name: text for name, text in texts.items() if parse_version(text)}


def _official(engine: EngineSpec) -> bool:
    """Return whether the image is upstream's of that release, as its name and tag say."""
    names = "|".join(map(re.escape, knowledge("vllm/images.yml")["repositories"]))
    whole = rf"(.*/)?({names})(:v{re.escape(engine.version)})?(@.*)?"
    return re.fullmatch(whole, engine.image or "") is not None


def names() -> tuple[str, ...]:
    """Return the names of the profiles, gentlest first."""
    return tuple(_profiles())


def _profiles() -> dict[str, dict[str, Any]]:
    profiles: dict[str, dict[str, Any]] = knowledge("vllm/profiles.yml")["profiles"]
    return profiles


def steps(profile: str | None) -> int:
    """Return the scheduler steps that the published profile has; 0 without a profile."""
    return int(_profiles().get(profile or "", {}).get("scheduler_steps", 0))


def with_profile(deployment: Deployment) -> Deployment:
    """Return the deployment with its profile's limits where it leaves them open.

    Whatever is computed from the limits (recipe, memory) must be computed from these.
    """
    chosen = _profiles().get(deployment.profile or "")
    if chosen is None:
        return deployment
    limits = deployment.limits
    open_ = {
        name: value for name, value in chosen["limits"].items() if getattr(limits, name) is None
    }
    return dataclasses.replace(deployment, limits=dataclasses.replace(limits, **open_))
