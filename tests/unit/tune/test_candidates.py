# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which configurations are measured: pruned by rules and memory, ordered by exact facts."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Layout,
    MixedLayout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import candidates, knobs, steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Budget, Question

from support.engines import DEEPSEEK, LLAMA, QWEN, deployment
from support.planned import build_plan
from support.topology.topologies import mi325x

BLOG = Workload("5600/140", 5600, 140)


def qwen(version="0.24.0", ep=True, layout=None, **limits):
    requested = deployment(QWEN, version, ep=ep, max_model_len=32768, **limits)
    return requested if layout is None else dataclasses.replace(requested, layout=layout)


def begun(requested, topology=None, **changes):
    question = Question(requested, BLOG, **{"knobs": {}, **changes})
    return steps.begin(question, architecture_of(requested, "x"), topology or mi325x())


def refused(requested, **changes):
    with pytest.raises(ApiaryError) as caught:
        begun(requested, **changes)
    return caught.value.findings[0]


def labels(state):
    return [one.label for one in state.candidates]


def not_tried(state):
    return {one.label: one for one in state.not_tried}


def fact(candidate, name):
    return next(one for one in candidate.facts if one.name == name).figure


def around(state, path, *values):
    queue = candidates.around(state, state.candidates[0], path, values)
    return [one.label for one in queue.candidates], {one.label: one for one in queue.not_tried}


def test_the_current_configuration_comes_first_then_layouts_in_the_order_of_auto():
    state = begun(qwen())
    considered = build_plan(
        dataclasses.replace(qwen(), layout=AutoLayout(concurrency=64, sequence_tokens=5740)),
        mi325x(),
        architecture_of(qwen(), "x"),
    ).layouts.considered
    order = [one.name for one in considered if one.verdict != "dropped"]
    order.remove("DP2/TP4/EP4")
    assert labels(state) == ["DP2/TP4/EP4", *order[:6]]
    assert state.current.id == "current"
    assert state.current.changes == {}


def test_rules_and_memory_prune_and_say_why():
    left_out = not_tried(begun(qwen()))
    assert left_out["DP1/TP8"].codes == ("ENGINE-MOE-BLOCK",)
    assert left_out["DP8/TP1"].codes == ("FIT-NO-ROOM",)
    assert "GiB" in left_out["DP8/TP1"].reason


def test_a_layout_that_was_not_measured_names_this_playbook():
    requested = qwen(layout="auto")
    plan = build_plan(requested, mi325x(), architecture_of(requested, "x"))
    (note,) = [one for one in plan.findings if one.code == "LAYOUT-NOT-MEASURED"]
    assert "playbooks/tune.yml" in note.remedy


def test_more_layouts_than_the_budget_has_are_named():
    state = begun(qwen(), budget=Budget(layouts=2))
    assert len(state.candidates) == 3
    assert "the budget is 2 layouts" in not_tried(state)["DP4/TP2"].reason


def test_two_engines_of_four_hold_72_per_cent_more_kv_than_one_of_eight():
    state = begun(qwen(kv_cache_dtype="fp8"), layouts=("DP1/TP8/EP8",))
    ours, other = (fact(one, "kv_tokens_per_host") for one in state.candidates)
    assert ours / other == pytest.approx(1.72, abs=0.005)


def test_facts_are_arithmetic_with_a_source():
    ours, other = begun(qwen(), layouts=("DP1/TP8/EP8",)).candidates
    # 94 layers, two all-reduces each, 2 (TP - 1) steps.
    assert fact(ours, "all_reduce_hops_per_token") == 94 * 2 * 2 * 3
    assert fact(other, "all_reduce_hops_per_token") == 94 * 2 * 2 * 7
    assert (fact(ours, "experts_per_gpu"), fact(other, "experts_per_gpu")) == (32, 16)
    assert fact(ours, "link_hops") == 1
    # 8 of 128 experts are read: 22 of 235 billion parameters, of a byte, over four GPUs.
    assert fact(ours, "weight_bytes_read_per_token") == pytest.approx(22e9 / 4, rel=0.05)
    # 4 KV heads of 128, keys and values, 2 bytes, 94 layers; TP4 has one head on each GPU.
    assert fact(ours, "kv_bytes_read_per_token") == 2 * 128 * 2 * 94 * (5600 + 70)
    assert fact(other, "kv_bytes_read_per_token") == fact(ours, "kv_bytes_read_per_token")
    assert all(one.source for one in ours.facts)


def test_a_dense_model_has_no_experts_to_count():
    requested = deployment(LLAMA, "0.33.0", size=8, max_model_len=8192)
    (only,) = begun(requested, layouts=()).candidates
    assert "experts_per_gpu" not in [one.name for one in only.facts]


def test_an_open_layout_is_the_current_one_and_its_own_choice_is_not_measured_twice():
    state = begun(qwen(layout="auto"))
    assert labels(state)[0] == "DP2/TP4/EP4"
    assert labels(state).count("DP2/TP4/EP4") == 1


def test_a_current_configuration_that_is_impossible_is_said_and_left_out():
    state = begun(qwen(layout=Layout(1, 8)))
    assert state.current is None
    assert state.candidates[0].stage == "layouts"
    assert not_tried(state)["the current configuration"].codes == ("FIT-NO-ROOM",)


def test_named_layouts_are_measured_whatever_auto_would_cut():
    state = begun(qwen(), layouts=("DP1/TP4/EP4", "TP4+TP2/EP", "DP2/TP1"))
    assert labels(state) == ["DP2/TP4/EP4", "DP1/TP4/EP4", "TP4+TP2/EP"]
    assert candidates.deployment_of(state, "dp1-tp4-ep4").layout == Layout(4, 1, True)
    assert candidates.deployment_of(state, "tp4-tp2-ep").layout == MixedLayout((4, 2), True)
    assert not_tried(state)["DP2/TP1"].codes == ("FIT-NO-ROOM",)


@pytest.mark.parametrize("name", ["TP4", "DP2/TP4/EP8", "DP0/TP4", "DP999/TP999", "x"])
def test_a_name_that_means_no_layout_is_refused(name):
    assert refused(qwen(), layouts=(name,)).code == "TRIAL-LAYOUT"


def test_replicas_over_several_hosts_are_refused():
    assert refused(qwen(layout=Layout(8, 1, True, 2, 2))).code == "TRIAL-NODES"


def test_nothing_to_measure_is_refused_with_the_reasons():
    finding = refused(deployment(DEEPSEEK, size=1), layouts=())
    assert finding.code == "TRIAL-NOTHING"
    assert "GiB" in finding.message


def test_a_knob_is_varied_around_a_configuration():
    state = begun(qwen(max_num_seqs=128), layouts=())
    tried, left_out = around(state, "limits.max_num_seqs", 64, 128, 256)
    assert tried == ["DP2/TP4/EP4 max_num_seqs=64", "DP2/TP4/EP4 max_num_seqs=256"]
    assert left_out == {}  # 128 is what it has


def test_a_knob_that_the_rules_forbid_is_not_tried():
    state = begun(qwen(), layouts=())
    tried, left_out = around(state, "limits.kv_cache_dtype", "fp8", "fp8_e5m2")
    assert tried == ["DP2/TP4/EP4 kv_cache_dtype=fp8"]
    assert left_out["DP2/TP4/EP4 kv_cache_dtype=fp8_e5m2"].codes == ("ENGINE-KV-DTYPE",)


def test_a_knob_that_leaves_no_memory_is_not_tried():
    state = begun(qwen(), layouts=())
    tried, left_out = around(state, "limits.gpu_memory_utilization", 0.2, 0.95)
    assert tried == ["DP2/TP4/EP4 gpu_memory_utilization=0.95"]
    assert left_out["DP2/TP4/EP4 gpu_memory_utilization=0.2"].codes == ("FIT-NO-ROOM",)


def test_a_switch_without_effect_is_not_tried():
    state = begun(qwen(), layouts=())
    tried, left_out = around(state, "engine.env.VLLM_ROCM_USE_AITER_MLA", "0")
    assert tried == []
    (only,) = left_out.values()
    assert only.codes == ("ENGINE-NO-EFFECT",)
    assert "latent attention" in only.reason


def test_the_same_command_is_not_measured_twice():
    """AITER is on already by the rules, and naming it changes nothing."""
    state = begun(qwen(), layouts=())
    tried, left_out = around(state, "engine.env.VLLM_ROCM_USE_AITER", "1", "0")
    assert tried == ["DP2/TP4/EP4 VLLM_ROCM_USE_AITER=0"]
    (only,) = left_out.values()
    assert "same commands" in only.reason


def test_a_flag_that_the_version_lacks_is_not_tried():
    state = begun(qwen(), layouts=())
    tried, left_out = around(state, "engine.args.num-scheduler-steps", 10)
    assert tried == []
    (only,) = left_out.values()
    assert only.codes == ("ENGINE-UNKNOWN-FLAG",)


def test_a_knob_that_may_change_answers_says_so():
    state = begun(qwen(), layouts=())
    queue = candidates.around(state, state.candidates[0], "limits.kv_cache_dtype", ("fp8",))
    assert [one.code for one in queue.candidates[0].findings] == ["TRIAL-ANSWERS"]


def test_what_serves_beside_keeps_its_gpus():
    topology = mi325x()
    beside = deployment(LLAMA, "0.33.0", size=4, max_model_len=8192)
    beside = dataclasses.replace(beside, name="beside", layout=Layout(4, 1), base_port=9000)
    other = build_plan(beside, topology, architecture_of(beside, "x"))
    requested = qwen(layout=Layout(4, 1, True))
    question = Question(requested, BLOG, knobs={})
    state = steps.begin(question, architecture_of(requested, "x"), topology, others=(other,))
    assert all("TP8" not in name for name in labels(state))
    plan = candidates.world_of(state).plan(state.candidates[-1].changes)
    used = {key for one in plan.replicas for key in one.gpus}
    assert used.isdisjoint(key for one in other.replicas for key in one.gpus)


def test_default_knobs_are_paths_of_a_deployment():
    requested = qwen()
    for path, values in knobs.defaults().items():
        for value in values:
            assert knobs.of(knobs.changed(requested, {path: value}), path) == value


def test_knobs_are_read_by_name_and_by_path():
    layouts, found = knobs.read(
        {
            "layouts": ["DP2/TP4"],
            "max_num_seqs": [2, 32],
            "env": {"VLLM_USE_V1": ["0"]},
            "args": {"compilation-config.level": [0, None]},
            "limits.max_num_batched_tokens": [2048],
        }
    )
    assert layouts == ("DP2/TP4",)
    assert found == {
        "limits.max_num_seqs": (2, 32),
        "engine.env.VLLM_USE_V1": ("0",),
        "engine.args.compilation-config.level": (0, None),
        "limits.max_num_batched_tokens": (2048,),
    }
    assert knobs.read({}) == (None, None)
    assert knobs.read({"layouts": []}) == ((), {})
    assert knobs.read({"max_num_seqs": [2]}) == (None, {"limits.max_num_seqs": (2,)})


@pytest.mark.parametrize(
    "requested",
    [
        {"max_num_seqs": 256},
        {"max_seqs": [1]},
        {"model.path": ["/x"]},
        {"env": ["A"]},
        {"engine.env.": ["1"]},
        {"layouts": "DP2/TP4"},
    ],
)
def test_what_is_no_knob_is_refused(requested):
    with pytest.raises(ApiaryError) as caught:
        knobs.read(requested)
    assert caught.value.findings[0].code == "TRIAL-KNOB"
