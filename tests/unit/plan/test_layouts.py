# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`layout: auto`: what is considered, what is dropped and why, what comes first."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Layout,
    MixedLayout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.preference import preference

from support.engines import DEEPSEEK, KIMI, LLAMA, QWEN, SMALL, deployment
from support.planned import build_plan
from support.topology.topologies import host, interleaved_hives, mi325x

# Llama-3.1-70B in FP8: 67 GiB.
LARGE = """{
  "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256,
  "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
  "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}
}"""


def planned(
    name=QWEN, layout="auto", profile=None, topology=None, config=None, version="0.33.0", **limits
):
    limits = {"max_model_len": 32768, **limits}
    asked = deployment(name, version, **limits)
    asked = dataclasses.replace(asked, layout=layout, profile=profile)
    architecture = read_config(config, "config.json") if config else architecture_of(asked, "x")
    return build_plan(asked, topology or mi325x(), architecture)


def chosen(**asked):
    return planned(**asked).layouts.considered[0].name


def considered(plan):
    return {one.name: one for one in plan.layouts.considered}


def refusals(**asked):
    with pytest.raises(ApiaryError) as caught:
        planned(**asked)
    return caught.value.findings


def test_up_to_0_30_tp8_without_experts_in_whole_is_dropped_with_the_block_as_reason():
    dropped = considered(planned(version="0.24.0"))["DP1/TP8"]
    assert dropped.verdict == "dropped"
    assert dropped.codes == ("ENGINE-MOE-BLOCK",)
    assert "8 GPUs cut the experts' 1536 columns" in dropped.reason
    assert "128" in dropped.reason
    assert considered(planned(version="0.24.0"))["DP1/TP8/EP8"].verdict == "possible"


@pytest.mark.parametrize("version", ["0.14.1", "0.24.0", "0.33.0"])
def test_the_published_layouts_come_first_for_what_they_were_published_for(version):
    assert chosen(profile="throughput", version=version) == "DP2/TP4/EP4"
    assert chosen(profile="low-latency", version=version) == "DP1/TP8/EP8"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"name": DEEPSEEK}, "DP1/TP8/EP8", id="weights-leave-no-room-for-copies"),
        pytest.param({"name": KIMI}, "DP1/TP8", id="few-of-many-experts-active"),
        pytest.param({"name": LLAMA}, "DP1/TP8", id="no-experts"),
        pytest.param({"config": LARGE}, "DP8/TP1", id="as-in-mlperf"),
        pytest.param({"config": LARGE, "profile": "balanced"}, "DP4/TP2", id="balanced"),
        pytest.param({"config": LARGE, "profile": "low-latency"}, "DP1/TP8", id="latency"),
        pytest.param({"config": SMALL}, "DP8/TP1", id="small"),
        pytest.param(
            {"config": SMALL, "profile": "low-latency"}, "DP8/TP1", id="too-small-to-split"
        ),
    ],
)
def test_what_comes_first(asked, expected):
    assert chosen(**{"profile": "throughput", **asked}) == expected


def test_a_preference_says_what_decided_and_that_measuring_would():
    plan = planned(profile="throughput")
    first = plan.layouts.considered[0]
    assert "2 replicas, against 1 replica in DP1/TP8" in first.reason
    assert considered(plan)["DP4/TP2"].reason.startswith("48% of the memory taken by weights")
    (note,) = [one for one in plan.findings if one.code == "LAYOUT-NOT-MEASURED"]
    assert note.severity == "info"
    assert "not by a measurement" in note.message
    assert "layout: preferred for throughput (profile throughput), not measured" in "\n".join(
        summary(plan)
    )


def test_the_published_gain_in_kv_room_is_exact():
    """15.1 million KV tokens a host in two TP4, 8.8 in one TP8 (FP8 KV cache)."""
    by_name = considered(planned(kv_cache_dtype="fp8"))
    assert by_name["DP2/TP4/EP4"].kv_tokens_per_host == pytest.approx(15.1e6, rel=0.01)
    assert by_name["DP1/TP8/EP8"].kv_tokens_per_host == pytest.approx(8.78e6, rel=0.01)


def test_every_layout_is_considered_once_and_the_verdicts_are_in_order():
    layouts = planned().layouts.considered
    assert len({(one.sizes, one.expert_parallel) for one in layouts}) == len(layouts)
    verdicts = [one.verdict for one in layouts]
    assert verdicts == sorted(verdicts, key=["chosen", "possible", "dropped"].index)
    assert verdicts.count("chosen") == 1
    assert all(one.reason for one in layouts)
    assert all(bool(one.codes) == (one.verdict == "dropped") for one in layouts)


def test_unequal_layouts_and_spares_are_considered():
    names = set(considered(planned()))
    assert {"TP4+TP2+TP2", "TP4+TP2+TP2/EP", "DP1/TP4", "DP3/TP2/EP2"} <= names


def test_a_host_that_lost_a_gpu_serves_with_unequal_replicas():
    plan = planned(profile="throughput", topology=mi325x(missing=[3]))
    assert plan.layout == MixedLayout((4, 2), expert_parallel=True)
    first, second = plan.replicas
    assert (len(first.gpus), len(second.gpus)) == (4, 2)
    assert set(first.gpus).isdisjoint(second.gpus)
    for replica, size in ((first, "4"), (second, "2")):
        position = replica.argv.index("--tensor-parallel-size")
        assert replica.argv[position + 1] == size
    assert first.kv_tokens > second.kv_tokens
    assert plan.memory.kv_tokens_per_host == first.kv_tokens + second.kv_tokens
    assert "TP4+TP2/EP" in summary(plan)[0]


def test_unequal_replicas_can_be_asked_for():
    plan = planned(layout=MixedLayout((2, 4, 2)))
    assert [len(replica.gpus) for replica in plan.replicas] == [2, 4, 2]
    assert [replica.port for replica in plan.replicas] == [8000, 8001, 8002]
    assert plan.layouts is None


def test_tp8_of_seven_gpus_says_so():
    dropped = considered(planned(topology=mi325x(missing=[3])))
    assert "DP1/TP8" not in dropped  # there is no eighth GPU to think of
    unusable = mi325x()
    sick = dataclasses.replace(unusable.gpus[3], healthy=False)
    gpus = tuple(sick if gpu.bdf == sick.bdf else gpu for gpu in unusable.gpus)
    one = considered(planned(topology=dataclasses.replace(unusable, gpus=gpus)))["DP1/TP8/EP8"]
    assert one.codes == ("PLACE-TOO-FEW-GPUS",)
    assert "needs 8 GPUs, 7 of 8 are usable" in one.reason


def test_a_replica_across_two_islands_comes_last():
    layouts = planned(profile="low-latency", topology=interleaved_hives()).layouts
    assert layouts.considered[0].name == "DP2/TP4/EP4"
    last = [one for one in layouts.considered if one.verdict == "possible"][-1]
    assert last.name.startswith("DP1/TP8")
    assert "pairs without xGMI" in last.reason


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (AutoLayout(expert_parallel=False), {False}),
        (AutoLayout(expert_parallel=True), {True}),
    ],
)
def test_expert_parallelism_can_be_fixed(wish, expected):
    layouts = planned(layout=wish).layouts.considered
    assert {one.expert_parallel for one in layouts} == expected


def test_a_fixed_size_leaves_the_number_open():
    plan = planned(layout=AutoLayout(tensor_parallel_size=2), profile="throughput")
    assert plan.layout == Layout(2, 4, True)
    assert {one.sizes[0] for one in plan.layouts.considered} == {2}


def test_a_fixed_number_leaves_the_size_open():
    plan = planned(layout=AutoLayout(replicas=2))
    assert plan.layout.sizes == (4, 4)
    by_name = considered(plan)
    assert {len(one.sizes) for one in by_name.values() if one.verdict != "dropped"} == {2}
    assert by_name["DP2/TP8/EP8"].codes == ("PLACE-TOO-FEW-GPUS",)


def test_spare_gpus_stay_free():
    plan = planned(layout=AutoLayout(spare=2), profile="throughput")
    assert len(plan.placement.free) >= 2
    assert all((one.free_gpus or 2) >= 2 for one in plan.layouts.considered)


def test_a_stated_load_orders_the_layouts():
    assert planned(layout=AutoLayout(concurrency=8)).layouts.preference == "low-latency"
    assert planned(layout=AutoLayout(concurrency=64)).layouts.preference == "balanced"
    assert planned(layout=AutoLayout(concurrency=65)).layouts.preference == "throughput"
    # Only the layout with most KV room holds so many; no other reason counts before that.
    crowd = AutoLayout(concurrency=230, sequence_tokens=32768)
    plan = planned(layout=crowd, profile="low-latency")
    assert plan.layout == Layout(4, 2, True)
    assert "room for" in considered(plan)["DP1/TP8/EP8"].reason
    shorter = AutoLayout(concurrency=230, sequence_tokens=5740)
    assert planned(layout=shorter, profile="low-latency").layout == Layout(8, 1, True)


def test_a_profile_counts_before_the_load():
    layouts = planned(layout=AutoLayout(concurrency=8), profile="maximum").layouts
    assert (layouts.preference, layouts.because) == ("throughput", "profile maximum")


def test_what_forbids_every_layout_alike_is_the_refusal_itself():
    assert [one.code for one in refusals(version="0.1.0")] == ["ENGINE-UNKNOWN-VERSION"]
    engine = dataclasses.replace(deployment().engine, args={"no-such-flag": 1})
    asked = dataclasses.replace(deployment(), layout="auto", engine=engine)
    with pytest.raises(ApiaryError) as caught:
        build_plan(asked, mi325x(), architecture_of(asked, "x"))
    assert [one.code for one in caught.value.findings] == ["ENGINE-UNKNOWN-FLAG"]


def test_where_nothing_fits_every_reason_is_told():
    (finding,) = refusals(name=LLAMA, topology=host([range(2)], [range(2)]))
    assert finding.code == "LAYOUT-NONE"
    assert "DP2/TP1: needs 7" in finding.message
    assert "DP1/TP2: needs 3" in finding.message
    assert "for TP2, set layout.tensor_parallel_size to 4 or 8" in finding.remedy
    (finding,) = refusals(layout=AutoLayout(spare=8))
    assert "8 of them stay free" in finding.message
    (finding,) = refusals(layout=AutoLayout(tensor_parallel_size=16, expert_parallel=True))
    assert "needs 16 GPUs, 8 of 8 are usable" in finding.message


def test_gpus_that_no_unit_could_be_held_to_are_refused_before_any_layout():
    two = host([range(2)], [range(2)])
    nameless = tuple(dataclasses.replace(gpu, bdf=None) for gpu in two.gpus)
    topology = dataclasses.replace(two, gpus=nameless, links=())
    assert [one.code for one in refusals(name=LLAMA, topology=topology)] == ["PLAN-NO-BDF"]


def test_one_gpu_has_no_experts_to_spread():
    by_name = considered(planned(max_model_len=1024))
    assert by_name["DP8/TP1"].verdict == "possible"
    assert "DP8/TP1/EP1" not in by_name
    assert "TP4+TP2+TP1+TP1/EP" in by_name


def test_on_very_many_gpus_unequal_means_two_sizes():
    many = host([range(20)], [range(10), range(10, 20)])
    layouts = planned(topology=many, max_model_len=1024).layouts.considered
    assert {len(set(one.sizes)) for one in layouts} == {1, 2}
    assert any(len(set(one.sizes)) == 3 for one in planned(max_model_len=1024).layouts.considered)


def test_what_is_equal_else_is_ordered_by_kv_room():
    layouts = planned(config=SMALL, profile="throughput").layouts.considered
    alike = [one for one in layouts if len(one.sizes) == 5 and len(set(one.sizes)) == 2]
    tokens = [one.kv_tokens_per_host for one in alike]
    assert len(tokens) > 1
    assert tokens == sorted(tokens, reverse=True)


def test_of_a_model_that_is_not_known_the_largest_engines_come_first():
    config = '{"model_type": "never_heard_of", "num_attention_heads": 16}'
    layouts = planned(config=config, profile="throughput").layouts
    assert layouts.considered[0].sizes == (8,)
    assert layouts.considered[0].kv_tokens_per_host is None


def test_weights_that_are_quantized_while_loading_count_as_loaded():
    engine = dataclasses.replace(deployment().engine, args={"quantization": "fp8"})
    asked = dataclasses.replace(deployment(LLAMA, size=8, max_model_len=32768), engine=engine)
    plan = build_plan(asked, mi325x(), architecture_of(asked, "x"))
    assert plan.memory.weights_bytes_per_gpu / 2**30 == pytest.approx(47.7, rel=0.01)


def test_a_forced_rule_no_longer_drops_a_layout_and_warns():
    asked = dataclasses.replace(
        deployment(QWEN, "0.24.0", max_model_len=32768),
        layout=AutoLayout(expert_parallel=False),
        force=("VLLM-MOE-BLOCK",),
        profile="low-latency",
    )
    plan = build_plan(asked, mi325x(), architecture_of(asked, "x"))
    assert plan.layout == Layout(8)
    (warning,) = [one for one in plan.findings if one.code == "ENGINE-FORCED"]
    assert warning.severity == "warning"
    assert "ENGINE-FORCED" in "\n".join(summary(plan))


def test_profiles_size_the_kv_pool_too():
    gentle, greedy = (
        planned(layout=Layout(4, 2, True), profile=one) for one in ("low-latency", "maximum")
    )
    assert gentle.replicas[0].kv_tokens > greedy.replicas[0].kv_tokens


def test_each_preference_compares_by_criteria_that_have_a_source():
    data = knowledge("layouts.yml")
    for name, entry in data["preferences"].items():
        wish = AutoLayout(concurrency=entry["concurrency_until"] or 10**6)
        found = preference(wish, None, 0.1)
        assert found.name == name
        for criterion in found.criteria():
            assert criterion.meaning
            assert criterion.source
            assert "sources." not in criterion.source
    ordered = {name for entry in data["preferences"].values() for name in entry["order"]}
    assert ordered == set(data["criteria"])
