# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`force`: a refusal that the operator takes on becomes a warning, and nothing else does."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess, recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import KIMI, QWEN, deployment


def make(force, name=QWEN, version="0.33.0", **more):
    asked = deployment(name, version, force=force, **more)
    return recipe(known(name), asked, "MI325X", 8000)


def warnings(made):
    return [item for item in made.findings if item.severity == "warning"]


def refused(force, **more):
    with pytest.raises(ApiaryError) as caught:
        make(force, **more)
    return [item for item in caught.value.findings if item.severity == "error"]


def test_a_forced_refusal_is_a_warning_that_says_what_was_refused():
    made = make(("VLLM-MOE-BLOCK",), version="0.14.1", size=8)
    (finding,) = warnings(made)
    assert finding.code == "ENGINE-FORCED"
    assert "no multiple of the FP8 block" in finding.message
    assert "Remove VLLM-MOE-BLOCK from force" in finding.remedy


def test_only_the_named_rule_is_forced():
    found = refused(
        ("VLLM-MOE-BLOCK",),
        version="0.14.1",
        size=8,
        env={"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"},
    )
    assert [item.code for item in found] == ["ENGINE-EXPANDABLE-SEGMENTS"]


@pytest.mark.parametrize(
    ("check", "args", "env", "argv"),
    [
        ("VLLM-KNOWN-FLAG", {"amd-own": 3}, {}, ("--amd-own", "3")),
        ("VLLM-KNOWN-FLAG", {"amd_own": True}, {}, ("--amd-own",)),
        ("VLLM-KNOWN-FLAG", {"amd-own": {"a": 1}}, {}, ("--amd-own", '{"a":1}')),
        ("VLLM-CHOICE", {"attention-backend": "NEW"}, {}, ("--attention-backend", "NEW")),
        (
            "VLLM-KNOWN-KEY",
            {"compilation-config": {"new": 1}},
            {},
            ("--compilation-config", '{"new":1}'),
        ),
        ("VLLM-KNOWN-ENV", {}, {"VLLM_AMD_OWN": 1}, ()),
    ],
)
def test_a_patched_engine_may_know_what_the_release_does_not(check, args, env, argv):
    forced = (check, "VLLM-BACKEND") if "attention-backend" in args else (check,)
    made = make(forced, ep=True, args=args, env=env)
    assert "ENGINE-FORCED" in {item.code for item in warnings(made)}
    place = made.argv.index(argv[0]) if argv else 0
    assert made.argv[place : place + len(argv)] == argv
    assert env.items() <= {name: int(v) for name, v in made.env.items() if v.isdigit()}.items()


@pytest.mark.parametrize("force", ["VLLM-VALUE", "VLLM-OWNED", "VLLM-DUPLICATE"])
def test_what_would_make_the_plan_untrue_cannot_be_forced(force):
    (finding,) = refused((force,))
    assert finding.code == "ENGINE-FORCE-UNKNOWN"
    assert "cannot be forced" in finding.message


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("VLLM-MOE-BLOK", "the nearest: VLLM-MOE-BLOCK"),
        ("ENGINE-X", "remove"),
        ("VLLM-AITER", ""),
    ],
)
def test_a_name_that_refuses_nothing_is_refused(name, part):
    (finding,) = refused((name,))
    assert finding.code == "ENGINE-FORCE-UNKNOWN"
    assert part in finding.remedy


def test_a_force_without_need_is_said():
    (finding,) = warnings(make(("VLLM-MOE-BLOCK",), ep=True))
    assert finding.code == "ENGINE-FORCE-UNUSED"


def test_an_assessment_is_the_forced_recipe_with_the_refusals():
    asked = deployment(KIMI, "0.15.1", 8, env={"VLLM_ROCM_USE_AITER_MLA": 1})
    found = assess(known(KIMI), asked, "MI325X", 8000)
    assert [(item.rule, item.stage) for item in found.refused] == [("VLLM-AITER-MLA-HEADS", "load")]
    assert found.recipe.env["VLLM_ROCM_USE_AITER_MLA"] == "1"
    assert found.recipe.attention_backend == "ROCM_AITER_MLA"


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        (deployment(size=3), {"config"}),
        (deployment(args={"no-such": 1}), {"parser"}),
        (deployment(args={"seed": "abc"}), {"parser"}),
        (deployment(args={"quantization": "nope"}), {"config"}),
        (deployment(args={"compilation-config": {"nope": 1}}), {"parser"}),
        (deployment(version="0.12.0", args={"compilation-config": {"nope": 1}}), {None}),
        (deployment(env={"VLLM_NOPE": 1}), {None}),
        (deployment(args={"port": 1}), {None}),
        (deployment(env={"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "FP8"}), {"load"}),
        (deployment(env={"VLLM_ENGINE_ITERATION_TIMEOUT_S": "soon"}), {None}),
    ],
)
def test_a_refusal_says_where_vllm_itself_stops(asked, stages):
    found = assess(known(QWEN), asked, "MI325X", 8000)
    assert {item.stage for item in found.refused} == stages


def test_a_malformed_deployment_is_not_assessed():
    with pytest.raises(ApiaryError, match=r"profile.*one of low-latency"):
        assess(known(QWEN), deployment(profile="fast"), "MI325X", 8000)
