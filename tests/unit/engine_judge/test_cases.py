# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is put to the judge: goldens, draws, mistakes, canaries."""

import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import newest

from engine import cases, upstream
from engine.__main__ import ALWAYS, CANARY, MISTAKEN
from engine.models import models
from engine.verdict import Verdict, unfed

QWEN = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The models that a bare clone has."""
    return models(tmp_path_factory.mktemp("judge"), real=False)


def test_a_bare_clone_has_the_models_that_are_asked_for(known):
    assert {CANARY, *MISTAKEN} <= set(known)
    config = json.loads((known[QWEN].directory / "config.json").read_text())
    assert config["model_type"] == known[QWEN].architecture.model_type == "qwen3_moe"


def test_every_golden_recipe_of_a_usual_release_is_fed(known):
    for version in ALWAYS:
        names = {path.stem for path in cases.GOLDEN.glob(f"*-{version}.json")}
        fed = {case.id.removeprefix("golden ") for case in cases.golden(version, known)}
        assert fed == names


def test_a_golden_recipe_finds_its_model_in_place(known):
    for case in cases.golden("0.14.1", known):
        name = case.argv[case.argv.index("--served-model-name") + 1]
        assert case.argv[1] == str(known[name].directory)


def test_the_draws_are_the_same_each_time(known):
    first, second = (list(cases.generated("0.33.0", known.values(), "MI325X", 1)) for _ in range(2))
    assert first == second
    assert len({case.id for case in first}) > len(known)


def test_a_recipe_that_nothing_refuses_says_its_backend(known):
    fed = [
        case for case in cases.generated("0.33.0", known.values(), "MI325X", 1) if not case.refused
    ]
    assert len(fed) > sum(not name.startswith("odd/") for name in known)
    assert all(case.backend for case in fed)


def test_mistakes_are_fed_as_they_were_asked(known):
    fed = {
        case.id.partition(" TP8 ")[2]: case
        for case in cases.mistaken("0.33.0", known, [CANARY], "MI325X")
    }
    assert "--no-such-flag" in fed["no-such-flag=1"].argv
    assert ("VLLM-KNOWN-FLAG", "parser") in fed["no-such-flag=1"].refused
    assert fed["VLLM_ROCM_QUICK_REDUCE_QUANTIZATION=INT4"].refused == ()


@pytest.mark.parametrize("version", [*ALWAYS, "0.27.1", "0.30.0", newest()])
def test_every_rule_that_vllm_enforces_is_fed(known, version, tmp_path):
    """Without real configs beside the checkout; a new rule may need a case of its own."""
    fed = [
        *cases.generated(version, known.values(), "MI325X", 1),
        *cases.mistaken(version, known, MISTAKEN, "MI325X"),
        *upstream.commands(version, "MI325X", upstream.models(tmp_path), small=False),
    ]
    assert unfed(version, [Verdict(case, "fed") for case in fed]) == []


@pytest.mark.parametrize(("gpu", "met"), [("MI300X", True), ("MI355X", False)])
def test_a_rule_of_other_gpus_need_not_be_fed(gpu, met):
    assert ("VLLM-K3-MXFP4" in unfed("0.33.0", [], gpu)) is met


@pytest.mark.parametrize(("version", "met"), [("0.29.0", True), ("0.30.0", False)])
def test_no_model_need_be_too_new_for_a_release_that_knows_all_classes(version, met):
    assert ("VLLM-MODEL-CLASS" in unfed(version, [])) is met


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("0.27.1", "VLLM-MODEL-CLASS"),
        ("0.28.0", "VLLM-MODEL-CUDA"),
        (newest(), "VLLM-MODEL-CUDA"),
    ],
)
def test_a_class_that_imports_kernels_of_other_gpus_is_refused(known, version, rule):
    fed = {case.id: case for case in cases.mistaken(version, known, [], "MI325X")}
    assert fed["odd/other-gpus TP8"].refused == ((rule, "config"),)


def test_sliding_layers_with_sinks_have_a_backend_beside_the_others(known):
    fed = {
        version: case.backend
        for version in ("0.19.1", "0.24.0")
        for case in cases.mistaken(version, known, [], "MI325X")
        if case.id.startswith("odd/narrow-values")
    }
    assert fed == {"0.19.1": "ROCM_AITER_UNIFIED_ATTN, ROCM_ATTN", "0.24.0": "TRITON_ATTN_DIFFKV"}


def test_the_same_command_is_fed_once(known):
    drawn = list(cases.generated("0.33.0", [known[QWEN]], "MI325X", 20))
    assert len(drawn) > len(cases.distinct(drawn)) > 20
    assert cases.distinct(drawn)[0] == drawn[0]


def test_a_model_that_is_built_whole_is_not_dropped_for_the_same_command(known):
    name = cases.PARTS_OF_BLOCKS
    whole = [
        case
        for case in cases.measured("0.33.0", [known[name]], "MI325X")
        if case.id.endswith("TP8 aiter whole")
    ]
    same = cases.Case("first", "MI325X", whole[0].argv, whole[0].env)
    assert cases.distinct([same, *whole]) == cases.distinct([*whole, same]) == whole


def test_another_gpu_is_said_in_every_case(known):
    drawn = list(cases.generated("0.33.0", [known[QWEN]], "MI355X", 1))
    assert {case.gpu for case in drawn} == {"MI355X"}


def test_a_draft_and_a_template_that_a_command_names_are_there(tmp_path):
    put = list(upstream.commands("0.33.0", "MI325X", upstream.models(tmp_path), small=False))
    drafts = [case for case in put if case.id.endswith(" draft")]
    kinds = set()
    for case in drafts:
        assert Path(case.argv[case.argv.index("--chat-template") + 1]).is_file()
        if "--speculative-config" in case.argv:
            config = json.loads(case.argv[case.argv.index("--speculative-config") + 1])
            assert (Path(config["model"]) / "config.json").is_file()
            kinds.add(config.get("method"))
    assert kinds == {"eagle3", "dflash", "dspark", None}
    assert not [case for case in put if "/a/draft" in str(case.argv) + str(case.env)]


def test_another_draft_has_another_command(tmp_path, monkeypatch):
    """Opinions are kept by the command, so it must change with what lies at its paths."""
    model = {name: one for name, one in upstream.models(tmp_path).items() if "Llama-3.1" in name}

    def put():
        return {case.argv for case in upstream.commands("0.33.0", "MI325X", model, small=False)}

    before = put()
    monkeypatch.setattr(upstream, "TEMPLATE", "other")
    assert len(before - put()) == 1
