# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine offers beside completions: parsers, drafts, encoders, offload, as facts.

What upstream's recipe of the model states (knowledge/vllm/recipes.yml) holds where the deployment
leaves a feature `auto`; what the release's own registries lack is never proposed.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping
from typing import Any

from ..deployment import Deployment
from ..documents import knowledge
from ..gpus import gpu_facts
from ..model.types import Architecture
from .conditions import Fact
from .flags import literals

PARSERS = {
    "tool": ("tool_calling", "--tool-call-parser", "TOOL_PARSERS"),
    "reasoning": ("reasoning", "--reasoning-parser", "REASONING_PARSERS"),
}
DRAFT_FLAG, METHODS = "--speculative-config", "SPECULATIVE_METHODS"


def features(
    architecture: Architecture, deployment: Deployment, version: str, gpu: str | None
) -> dict[str, Fact]:
    """Return the facts; an empty text is none."""
    entry, where = upstream(deployment.model.name)
    requested = deployment.features
    result: dict[str, Fact] = {
        "chat_template": requested.chat_template or "",
        "text_only": requested.text_only,
        "eplb": requested.eplb,
        "kv_offload_gib": None
        if requested.kv_offload_gib == "auto"
        else int(requested.kv_offload_gib),
        **_template(entry, requested.chat_template),
        **_encoder(architecture, deployment, version),
        "kv_offload_offered": "cpu" in entry.get("offload", ()),
        **_draft(architecture, deployment, version, gpu),
    }
    for kind, (feature, _flag, registry) in PARSERS.items():
        name, source = _parser(entry, where, architecture.model_type, kind)
        known = literals(version, registry)
        optional = feature in entry.get("opt_in", ())
        state = getattr(requested, feature)
        # A release whose registry has not been read is left to the operator.
        wanted = bool(name and known) and (state is True or (state == "auto" and not optional))
        result |= {
            f"{kind}_parser": name if wanted and name in known else "",
            f"{kind}_parser_missing": name if wanted and name not in known else "",
            f"{kind}_parser_unknown": state is True and not name,
            f"{kind}_parser_source": source,
        }
    return result


def upstream(name: str) -> tuple[Mapping[str, Any], str]:
    """Return upstream's recipe of a model and where it stands; empty where there is none."""
    model = _by_stem().get(stem(name))
    if model is None:
        return {}, ""
    document = knowledge("vllm/recipes.yml")
    entry = document["recipes"][model]
    return entry, f"vLLM {document['version']}, {entry['path']}"


def stem(name: str) -> str:
    """Return a model's name without owner, precision and format."""
    endings = knowledge("vllm/features.yml")["same_model"]["endings"]
    parts = name.rpartition("/")[2].casefold().replace("_", "-").split("-")
    while len(parts) > 1 and parts[-1] in endings:
        parts.pop()
    return "-".join(parts)


@functools.cache
def _by_stem() -> Mapping[str, str]:
    """Return each recipe's model by the stems of its checkpoints; its own name goes first."""
    entries = knowledge("vllm/recipes.yml")["recipes"]
    result = {stem(model): model for model in entries}
    for model, entry in entries.items():
        for checkpoint in entry.get("checkpoints", {}).values():
            result.setdefault(stem(checkpoint["model"]), model)
    return result


def _parser(entry: Mapping[str, Any], where: str, model_type: str, kind: str) -> tuple[str, str]:
    """Return a parser's name and its source; empty where none is known."""
    feature, flag, _registry = PARSERS[kind]
    words = entry.get("features", {}).get(feature, {}).get("args", [])
    if flag in words[:-1]:
        return words[words.index(flag) + 1], where
    table = knowledge("vllm/features.yml")["model_types"]
    name = "" if entry else table["parsers"].get(model_type, {}).get(kind, "")
    return name, table["source"] if name else ""


def _template(entry: Mapping[str, Any], stated: str | None) -> dict[str, Fact]:
    """Return the chat template that upstream's recipe names and the deployment does not."""
    words = entry.get("features", {}).get("tool_calling", {}).get("args", [])
    named = words[words.index("--chat-template") + 1] if "--chat-template" in words[:-1] else ""
    return {"chat_template_missing": "" if stated else named}


def _encoder(architecture: Architecture, deployment: Deployment, version: str) -> dict[str, Fact]:
    """Say whether each GPU gets a whole encoder and a part of the images."""
    state = deployment.features.encoder_data_parallel
    model_class = knowledge("vllm/models.yml")["classes"].get(architecture.model_type)
    able = model_class in literals(version, "ENCODER_DATA_CLASSES") if model_class else None
    size = deployment.decided.tensor_parallel_size
    wanted = state is True or (state == "auto" and bool(able))
    tower, keys = architecture.vision or {}, knowledge("vllm/models.yml")["vision"]["head_keys"]
    heads = next((tower[key] for key in keys if isinstance(tower.get(key), int)), 0)
    uneven = heads % size
    # A text-only engine builds the tower, too, and leaves it without weights.
    has_tower = bool(tower) and (uneven > 0 or not deployment.features.text_only)
    return {
        "encoder_heads_remainder": uneven,
        "encoder_data_parallel": bool(wanted and has_tower and size > 1),
        "encoder_data_unable": state is True and able is False,
    }


def _draft(
    architecture: Architecture, deployment: Deployment, version: str, gpu: str | None
) -> dict[str, Fact]:
    """Return the configuration of speculative decoding, or why there is none."""
    facts = knowledge("vllm/features.yml")["speculation"]
    entry, where = upstream(deployment.model.name)
    state, requests = deployment.features.speculation, deployment.limits.max_num_seqs
    config: dict[str, Any] = {}
    source = missing = ""
    named, known = facts["own"].get(architecture.model_type), literals(version, METHODS)
    configs = [one for one in _configs(entry, gpu or "") if one.get("method", named) in known]
    own = _own_draft(architecture, configs, version)
    if state == "auto":
        kind, gfx = architecture.model_type, gpu_facts(gpu).gfx
        entries = [x for x in facts["measured"] if x["gfx"] == gfx and kind in x["model_types"]]
        if own and entries and requests is not None and requests <= entries[0]["most"]:
            config, source = own, entries[0]["source"]
    elif state == "mtp":
        config, source = own, where or "deployment features.speculation"
        missing = "" if own else "mtp"
    elif state == "ngram":
        config = {"method": "ngram", "num_speculative_tokens": facts["tokens"]["ngram"]}
        config, source = config | facts["ngram"], facts["ngram_source"]
    elif state == "draft":
        config = _other_draft(configs, deployment.features.draft_model)
        source, missing = where, "" if config else "draft"
    text = json.dumps(config, separators=(",", ":"), sort_keys=True) if config else ""
    verified = entry.get("gpus", {}).get(gpu or "") == "verified"
    offers = configs if verified and state == "auto" and not config else []
    draft = next((str(other["model"]) for other in offers if "model" in other), "")
    return {
        "speculative_config": text,
        "speculative_method": config.get("method", "none"),
        "speculation_source": source,
        "speculation_missing": missing,
        "speculation_offered": "mtp" if own in offers else "draft" if draft else "",
        "speculation_draft": draft,
    }


def _own_draft(
    architecture: Architecture, configs: list[dict[str, Any]], version: str
) -> dict[str, Any]:
    """Return how to speculate with the checkpoint's own layers, if it has any that vLLM runs."""
    method = knowledge("vllm/features.yml")["speculation"]["own"].get(architecture.model_type)
    layers = (architecture.details or {}).get("mtp_layers")
    if not layers or method not in literals(version, METHODS):
        return {}
    for config in configs:
        if "model" not in config and str(config.get("method", "")).endswith("mtp"):
            return config
    return {"method": "mtp", "num_speculative_tokens": 1}


def _other_draft(configs: list[dict[str, Any]], path: str | None) -> dict[str, Any]:
    """Return how to speculate with another model's weights, which lie at ``path``."""
    return next(({**one, "model": path} for one in configs if path and "model" in one), {})


def _configs(entry: Mapping[str, Any], gpu: str) -> list[dict[str, Any]]:
    """Return the speculative configurations of a recipe on a GPU, upstream's own choice first."""
    drafts = entry.get("drafts", {})
    result = []
    for name in sorted(drafts, key=lambda name: name != entry.get("draft")):
        parts = (drafts[name], *(drafts[name].get(each, {}) for each in ("amd", gpu)))
        words = [word for part in parts for word in part.get("args", [])]
        config: dict[str, Any] = {}
        for word, after in itertools.pairwise(words):
            if word == DRAFT_FLAG:
                config |= json.loads(after)
            elif word.startswith(f"{DRAFT_FLAG}."):
                config[word.partition(".")[2]] = int(after) if after.isdecimal() else after
        if config:
            result.append(config)
    return result
