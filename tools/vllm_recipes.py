# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read upstream's deployment recipes from a vLLM source distribution: settings, not sentences.

    vllm_recipes.py SOURCES VERSION > recipes.yml

What holds for other vendors' accelerators alone is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HEADER = """\
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
---
# Made by tools/vllm_recipes.py from a release's source distribution; do not edit.
# By model: gpus (what upstream says of AMD's), since (first release), args and env of every
# deployment, amd and single GPUs' additions, features by name, opt_in (features that are off
# unless asked for), drafts (ways to speculate), checkpoints, offload, tensor_parallel.
# Of recipes that name no GPU of AMD's only what holds for the model anywhere.
"""
_AMD = re.compile(r"mi\d+x?")


def recipes(sources: Path) -> dict[str, dict[str, Any]]:
    """Return the recipes by model."""
    result = {}
    for path in sorted((sources / "recipes/models").glob("*/*.yaml")):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        where = {"path": path.relative_to(sources).as_posix()}
        result[recipe["model"]["model_id"]] = where | _recipe(recipe)
    return dict(sorted(result.items()))


def _recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    model = recipe["model"]
    features = recipe.get("features") or {}
    strategy = (recipe.get("strategy_overrides") or {}).get("single_node_tp") or {}
    overrides = _overrides(recipe)
    for name, settings in _overrides(strategy).items():
        overrides[name] = _joined(overrides.get(name, {}), settings)
    variants = {
        name: _variant(model["model_id"], variant) for name, variant in recipe["variants"].items()
    }
    entry = {
        "since": model.get("min_vllm_version"),
        "gpus": {
            name.upper(): state
            for name, state in (recipe["meta"].get("hardware") or {}).items()
            if _AMD.fullmatch(name)
        },
        "image": _image(model.get("docker_image")),
        "nightly": model.get("nightly_required"),
        **_settings(model, "base_args", "base_env"),
        **overrides,
        "tensor_parallel": strategy.get("tp"),
        "features": {
            name: _settings(feature) | _overrides(feature)
            for name, feature in features.items()
            if name != "spec_decoding"
        },
        "drafts": _drafts(features.get("spec_decoding") or {}),
        "draft": (features.get("spec_decoding") or {}).get("default_mode"),
        "opt_in": recipe.get("opt_in_features"),
        "checkpoints": variants,
        "offload": sorted(
            name.removeprefix("offloading_")
            for name, state in (recipe.get("kv_offload_support") or {}).items()
            if state == "verified"
        ),
    }
    if not entry["gpus"]:  # nothing is claimed of AMD's GPUs; what the model itself needs holds
        entry = {key: entry[key] for key in ("since", "features", "drafts", "draft", "opt_in")}
    return _filled(entry)


def _drafts(feature: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ways to speculate; one alone has no name upstream."""
    modes = feature.get("modes") or ({"default": feature} if feature else {})
    return {
        name: _filled({**_settings(mode), **_overrides(mode), "checkpoints": mode.get("variants")})
        for name, mode in modes.items()
    }


def _variant(model: str, variant: Mapping[str, Any]) -> dict[str, Any]:
    hardware = variant.get("supported_hardware")
    return _filled(
        {
            "model": variant.get("model_id", model),
            "precision": variant.get("precision"),
            "since": variant.get("min_vllm_version"),
            "tensor_parallel": variant.get("tp"),
            "gpus": None
            if hardware is None
            else [name.upper() for name in hardware if _AMD.fullmatch(name)],
            **_settings(variant, "extra_args", "extra_env"),
            **_overrides(variant),
        },
        keep=("gpus",),
    )


def _overrides(part: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is added for AMD's GPUs, all or single models of them."""
    found = {
        name if name == "amd" else name.upper(): _settings(entry, "extra_args", "extra_env")
        or _settings(entry)
        for name, entry in (part.get("hardware_overrides") or {}).items()
        if (name == "amd" or _AMD.fullmatch(name)) and isinstance(entry, Mapping)
    }
    return {name: settings for name, settings in found.items() if settings}


def _settings(part: Mapping[str, Any], args: str = "args", env: str = "env") -> dict[str, Any]:
    return _filled(
        {
            "args": [str(word) for word in part.get(args) or ()],
            "env": {str(name): str(value) for name, value in (part.get(env) or {}).items()},
        }
    )


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return _filled(
        {
            "args": [*first.get("args", ()), *second.get("args", ())],
            "env": {**first.get("env", {}), **second.get("env", {})},
        }
    )


def _image(image: Any) -> Any:
    return image.get("amd") if isinstance(image, Mapping) else None


def _filled(entry: Mapping[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return an entry without what says nothing."""
    return {
        key: value
        for key, value in entry.items()
        if value not in (None, [], {}, "") or (key in keep and value is not None)
    }


def text(sources: Path, version: str) -> str:
    """Return the knowledge file."""
    source = f"vLLM {version}, recipes/models/ of its source distribution"
    lines = [f"source: {_flow(source)}", f"version: {version}", "recipes:"]
    for model, entry in recipes(sources).items():
        lines.append(f"  {_flow(model)}:")
        for key, value in entry.items():
            if key in ("checkpoints", "features", "drafts"):
                lines.append(f"    {key}:")
                lines += [f"      {_flow(name)}: {_flow(part)}" for name, part in value.items()]
            else:
                lines.append(f"    {key}: {_flow(value)}")
    return HEADER + "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return dumped.strip().removesuffix("...").strip()


if __name__ == "__main__":
    sys.stdout.write(text(Path(sys.argv[1]), sys.argv[2]))
