# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every plan: it stays within the GPUs' memory, and what auto says can be built."""

import dataclasses
import functools
import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Layout,
    MixedLayout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import names
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    known,
    known_names,
    read_config,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, check_plan
from hypothesis import given
from hypothesis import strategies as st

from support.engines import deployment
from support.examples import examples
from support.planned import build_plan
from support.topology.topologies import VRAM, interleaved_hives, mi325x

# Dense models of 1 and 67 GiB, so that small engines are possible as well.
CONFIGS = {
    "small": {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 151936,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 3072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "max_position_embeddings": 40960,
    },
    "medium": {
        "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    },
}  # fmt: skip
HOSTS = (
    mi325x(),
    *(mi325x(missing=range(count)) for count in range(5)),
    mi325x(missing=[1, 6]),
    interleaved_hives(),
)
SIZES = st.sampled_from([1, 2, 4, 8, 3, 6])
wishes = st.builds(
    AutoLayout,
    tensor_parallel_size=st.one_of(st.just("auto"), SIZES),
    replicas=st.one_of(st.just("auto"), SIZES),
    expert_parallel=st.sampled_from(["auto", True, False]),
    spare=st.integers(0, 3),
    concurrency=st.none() | st.integers(1, 5000),
    sequence_tokens=st.none() | st.integers(1, 40000),
)
fixed = st.one_of(
    st.builds(Layout, SIZES, st.integers(1, 2), st.booleans()),
    st.builds(MixedLayout, st.lists(SIZES, min_size=1, max_size=3).map(tuple), st.booleans()),
)
asked = st.builds(
    deployment,
    name=st.sampled_from([*CONFIGS, *known_names()]),
    version=st.sampled_from(["0.14.1", "0.18.1", "0.24.0", "0.33.0"]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    max_model_len=st.sampled_from([None, 4096, 32768]),
    max_num_batched_tokens=st.sampled_from([None, 32768]),
    gpu_memory_utilization=st.sampled_from([0.9, 0.95, 0.8, 0.3]),
)
profiles = st.none() | st.sampled_from(names())


@functools.cache
def architecture_of(name):
    config = CONFIGS.get(name)
    return known(name) if config is None else read_config(json.dumps(config), name)


def attempt(wanted, layout, topology, profile):
    """Return the plan, or the codes of its refusal."""
    wanted = dataclasses.replace(wanted, layout=layout, profile=profile)
    try:
        return build_plan(wanted, topology, architecture_of(wanted.model.name))
    except ApiaryError as refusal:
        return {finding.code for finding in refusal.findings}


def check_memory(plan):
    """Add up a GPU by the plan's own account."""
    needs, share = plan.memory, plan.deployment.limits.gpu_memory_utilization
    parts = (needs.weights_bytes_per_gpu, needs.reserve_bytes_per_gpu, needs.kv_pool_bytes_per_gpu)
    assert min(parts) >= 0
    assert sum(parts) <= share * VRAM < VRAM
    assert needs.max_sequences >= 1
    for replica in plan.replicas:
        assert 0 < replica.kv_tokens <= needs.kv_tokens_per_host
    assert needs.kv_tokens_per_host == sum(replica.kv_tokens for replica in plan.replicas)


def check_replicas(plan, topology):
    used = [key for replica in plan.replicas for key in replica.gpus]
    assert len(set(used)) == len(used)
    assert set(used) <= set(topology.by_key)
    assert tuple(len(replica.gpus) for replica in plan.replicas) == plan.layout.sizes
    assert len({replica.port for replica in plan.replicas}) == len(plan.replicas)


@given(asked, fixed, st.sampled_from(HOSTS), profiles)
@examples(1.5)
def test_no_plan_exceeds_the_memory_by_its_own_account(wanted, layout, topology, profile):
    plan = attempt(wanted, layout, topology, profile)
    if isinstance(plan, Plan):
        check_memory(plan)
        check_replicas(plan, topology)


@given(asked, wishes | st.just("auto"), st.sampled_from(HOSTS), profiles, st.data())
@examples(1.5)
def test_what_auto_says_of_a_layout_is_so(wanted, wish, topology, profile, data):
    plan = attempt(wanted, wish, topology, profile)
    if not isinstance(plan, Plan):
        assert plan
        return
    check_memory(plan)
    check_replicas(plan, topology)
    layouts = plan.layouts.considered
    assert [one.verdict for one in layouts].count("chosen") == 1
    assert {one.verdict for one in layouts} <= {"chosen", "possible", "dropped"}
    assert len({(one.sizes, one.expert_parallel) for one in layouts}) == len(layouts)
    assert all(one.reason for one in layouts)
    one = data.draw(st.sampled_from(layouts))
    alone = attempt(wanted, MixedLayout(one.sizes, one.expert_parallel), topology, profile)
    if one.verdict == "dropped" and set(one.codes) != {"PLACE-TOO-FEW-GPUS"}:
        assert not isinstance(alone, Plan)
        assert set(one.codes) <= alone
    elif one.verdict != "dropped":
        assert isinstance(alone, Plan)
        check_memory(alone)
        assert alone.memory.kv_tokens_per_host == one.kv_tokens_per_host
    if one.verdict == "chosen":
        assert alone.replicas == plan.replicas


@given(asked, wishes | fixed | st.just("auto"), st.sampled_from(HOSTS), profiles)
@examples(0.6)
def test_a_plan_survives_its_own_file(wanted, layout, topology, profile):
    plan = attempt(wanted, layout, topology, profile)
    if isinstance(plan, Plan):
        again = from_document(Plan, to_document(plan), "plan.json")
        assert again == plan
        check_plan(again, "plan.json")
