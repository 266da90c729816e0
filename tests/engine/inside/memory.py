# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the first rank of a whole model holds: bytes of its parameters and of its KV cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def weights(model: Any) -> dict[str, int]:
    """Return the bytes of a model's parameters, and of what vLLM makes of kv_b once it is loaded.

    For latent attention it keeps both halves of kv_b as 16-bit matrices beside the projection.
    Tables that lie in host memory are `host`, all other parameters `weights`.
    """
    host = tuple(
        f"{name}."
        for name, module in model.named_modules()
        if getattr(module, "cpu_offload", False) is True
    )
    total = {"weights": 0, "host": 0}
    for name, parameter in model.named_parameters():
        place = "host" if name.startswith(host) else "weights"
        total[place] += parameter.numel() * parameter.element_size()
        if name.endswith("kv_b_proj.weight") and parameter.element_size() <= 2:
            total["weights"] += parameter.numel() * 2
    return total


def caches(config: Any, layers: Mapping[str, Any]) -> dict[str, float]:
    """Return the KV cache's bytes: of a token in all full and in all sliding layers, of a state.

    A layer that uses another one's keys and values has none.
    """
    result = {"full": 0.0, "sliding": 0.0, "linear": 0.0}
    specs = _specs(config, layers)
    if config.scheduler_config.disable_hybrid_kv_cache_manager:
        try:
            from vllm.v1.core.kv_cache_planning import unify_hybrid_kv_cache_specs
        except ImportError:
            from vllm.v1.core.kv_cache_utils import unify_hybrid_kv_cache_specs
        unify_hybrid_kv_cache_specs(specs)
    for spec in specs.values():
        for kind, size in _sizes(spec):
            result[kind] += size
    return result


def sequence(config: Any, layers: Mapping[str, Any]) -> float | None:
    """Return the cache's bytes of one sequence of max_model_len tokens, in vLLM's own groups.

    None for a release without the builder of these groups, such as 0.31.0.
    """
    try:
        from vllm.v1.core.kv_cache_planning import (
            DefaultKVCacheConfigBuilder,
            _max_memory_usage_bytes_from_groups,
        )
    except ImportError:
        return None
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.worker.worker_base import (
        get_current_attn_backends,
        get_supported_kv_cache_layouts,
    )

    specs = _specs(config, layers)
    layouts = get_supported_kv_cache_layouts(get_current_attn_backends(config))
    resolve_kv_cache_layout(config, [[layout.name for layout in layouts]], list(specs.values()))
    builder = DefaultKVCacheConfigBuilder()
    groups = builder.get_kv_cache_groups(config, specs)
    return float(_max_memory_usage_bytes_from_groups(builder, config, groups))


def _specs(config: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: spec
        for name, layer in layers.items()
        if not getattr(layer, "kv_sharing_target_layer_name", None)
        and (spec := layer.get_kv_cache_spec(config)) is not None
    }


def _sizes(spec: Any) -> Iterable[tuple[str, float]]:
    name = type(spec).__name__
    if name == "MambaSpec":
        yield (
            "linear",
            sum(
                _product(shape) * dtype.itemsize
                for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True)
            ),
        )
        return
    size = getattr(spec, "real_page_size_bytes", None) or spec.page_size_bytes
    windowed = name.startswith(("SlidingWindow", "ChunkedLocal"))
    yield "sliding" if windowed else "full", size / spec.block_size


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
