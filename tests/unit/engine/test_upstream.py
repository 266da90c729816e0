# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Upstream's recipes for these GPUs: read by machine, planned, and every difference explained."""

import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import features
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import (
    literals,
    newest,
    versions,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import by_id

from engine import models, upstream
from support.each import each

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/docs")]

import upstream_page  # noqa: E402
import vllm_recipes  # noqa: E402

RELEASE = knowledge("vllm/recipes.yml")["version"]


def test_the_recipes_are_those_of_a_known_release():
    assert RELEASE in versions()
    assert len(knowledge("vllm/recipes.yml")["recipes"]) >= 188
    assert len(upstream_page.verified()) >= 58


@each(upstream_page.verified())
def test_a_verified_recipe_is_planned_and_its_differences_are_explained(model):
    entry = upstream_page.verified()[model]
    theirs = upstream_page.settings(*upstream_page.words_of(entry), RELEASE)
    assert theirs.unknown == ()
    made = upstream_page.ours(model, entry, theirs, RELEASE)
    assert made is not None, "tests/engine/configs.yml has no dimensions for it"
    refused = {item.rule for item in made.refused}
    if theirs.flags.get("trust_remote_code") == "true":  # the operator's own yes here
        refused -= {"VLLM-CONFIG-CODE", "VLLM-REMOTE-CODE"}
    assert refused == set()
    mine = upstream_page.settings(made.recipe.argv[2:], made.recipe.env, RELEASE)
    assert all(row[-1] for row in upstream_page.differences(theirs, mine))
    parser = theirs.flags.get("tool_call_parser")
    if parser in literals(RELEASE, "TOOL_PARSERS"):
        assert mine.flags["tool_call_parser"] == parser
        assert mine.flags["enable_auto_tool_choice"] == "true"
    reasoning = theirs.flags.get("reasoning_parser")
    if reasoning in literals(RELEASE, "REASONING_PARSERS"):
        assert mine.flags["reasoning_parser"] == reasoning


def test_the_judge_is_given_all_of_them_but_those_that_the_page_names(tmp_path):
    everything = upstream.models(tmp_path)
    known = {name: everything[name] for name in upstream_page.verified()}
    put = {}
    for name, model in known.items():
        for case in upstream.commands(RELEASE, upstream_page.GPU, {name: model}, small=True):
            put[name] = case
    assert {name for name in known if name not in put} == set(models.unjudged())
    assert {name: case.refused for name, case in put.items() if case.refused} == {}
    # Upstream names no size, and VLLM-KIMI-LINEAR-PADDED refuses eight GPUs.
    assert "TP4" in put["moonshotai/Kimi-Linear-48B-A3B-Instruct"].id


def test_the_page_says_which_recipe_the_judge_cannot_be_given_and_why(monkeypatch):
    name = "zai-org/GLM-4.5"
    monkeypatch.setitem(upstream_page.corpus()["unjudged"], name, "it has no files")
    section = "\n".join(upstream_page.of_model(name, upstream_page.verified()[name], RELEASE))
    assert "real parser and configuration: it has no files." in section


def test_a_difference_that_nothing_explains_is_an_error():
    theirs = upstream_page.Settings({"seed": "7"}, {})
    with pytest.raises(ValueError, match="nothing explains flags seed=7"):
        list(upstream_page.differences(theirs, upstream_page.Settings({}, {})))


def test_what_upstream_verifies_of_kv_offload_is_a_row():
    verified, none = upstream_page.verified()["MiniMaxAI/MiniMax-M2"], {"args": []}
    (row,) = upstream_page.offload(verified, upstream_page.Settings({}, {}))
    assert row[:3] == ("KV offload", "verified: host memory, files", "–")
    assert row[3].endswith("`VLLM-KV-OFFLOAD` `features.kv_offload_gib`")
    (row,) = upstream_page.offload(
        verified, upstream_page.Settings({"kv_offloading_size": "9"}, {})
    )
    assert row[2] == "9"
    assert not list(upstream_page.offload(none, upstream_page.Settings({}, {})))


def test_explanations_name_rules_that_are():
    table = knowledge("vllm/upstream_differences.yml")
    named = {
        entry["rule"]
        for kind in ("flags", "env")
        for entry in table[kind].values()
        if "rule" in entry
    }
    assert named <= {*by_id(), "VLLM-ATTENTION-BACKEND"}


def test_a_checkpoint_is_its_model_whatever_its_precision():
    for name in (
        "zai-org/GLM-4.5",
        "zai-org/GLM-4.5-FP8",
        "someone/GLM-4.5-AWQ-4bit",
        "GLM-4.5_w4a16",
    ):
        entry, where = features.upstream(name)
        assert where.endswith("recipes/models/zai-org/GLM-4.5.yaml"), name
        assert "reasoning" in entry["features"]
    assert features.upstream("someone/else") == ({}, "")
    assert features.upstream("") == ({}, "")
    assert features.stem("fp8") == "fp8"


@each(knowledge("vllm/features.yml")["model_types"]["parsers"].values())
def test_parsers_by_model_type_are_the_newest_releases(parsers):
    assert parsers.get("tool") in {None, *literals(newest(), "TOOL_PARSERS")}
    assert parsers.get("reasoning") in {None, *literals(newest(), "REASONING_PARSERS")}


def test_a_recipe_is_read_by_setting_and_other_vendors_are_left_out(tmp_path):
    path = tmp_path / "recipes/models/org/name.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "meta: {hardware: {h200: verified, mi325x: verified}, title: words}\n"
        "model: {model_id: org/name, min_vllm_version: '0.20.0', base_args: ['--a', 1],"
        " docker_image: {amd: image, nvidia: other}}\n"
        "features:\n"
        "  reasoning: {description: words, args: [--reasoning-parser, x]}\n"
        "  spec_decoding: {default_mode: mtp, modes: {mtp: {args: [--speculative-config, '{}']}}}\n"
        "hardware_overrides: {amd: {extra_env: {A: 1}}, blackwell: {extra_args: [--b]}}\n"
        "strategy_overrides: {single_node_tp: {tp: 4,"
        " hardware_overrides: {mi325x: {extra_args: [--c]}}}}\n"
        "variants: {default: {precision: bf16},"
        " fp4: {model_id: org/fp4, supported_hardware: [b200]}}\n"
        "kv_offload_support: {offloading_cpu: verified, offloading_fs: listed}\n"
        "opt_in_features: [spec_decoding]\nguide: words\n"
    )
    assert vllm_recipes.recipes(tmp_path) == {
        "org/name": {
            "path": "recipes/models/org/name.yaml",
            "since": "0.20.0",
            "gpus": {"MI325X": "verified"},
            "image": "image",
            "args": ["--a", "1"],
            "amd": {"env": {"A": "1"}},
            "MI325X": {"args": ["--c"]},
            "tensor_parallel": 4,
            "features": {"reasoning": {"args": ["--reasoning-parser", "x"]}},
            "drafts": {"mtp": {"args": ["--speculative-config", "{}"]}},
            "draft": "mtp",
            "opt_in": ["spec_decoding"],
            "checkpoints": {
                "default": {"model": "org/name", "precision": "bf16"},
                "fp4": {"model": "org/fp4", "gpus": []},
            },
            "offload": ["cpu"],
        }
    }
    assert "words" not in vllm_recipes.text(tmp_path, "0.20.0")
