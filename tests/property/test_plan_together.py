# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every set of deployments on a host: nothing that one has does another have."""

import dataclasses
import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Layout,
    MixedLayout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.replica import (
    block_size,
    internal_ports,
)
from hypothesis import given
from hypothesis import strategies as st

from support.engines import deployment
from support.examples import examples
from support.planned import build_plan
from support.topology.topologies import interleaved_hives, mi325x

# Small, so that engines of one GPU are possible as well.
CONFIG = {
    "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 151936,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "max_position_embeddings": 40960,
}  # fmt: skip
MODEL = read_config(json.dumps(CONFIG), "small")
HOSTS = (mi325x(), mi325x(missing=[2]), mi325x(missing=[1, 6]), interleaved_hives())
ports = st.lists(st.integers(1024, 65535), min_size=1, max_size=200, unique=True)
decided = st.one_of(
    st.builds(Layout, st.sampled_from([1, 1, 2, 4]), st.integers(1, 2), st.just(False)),
    st.builds(
        MixedLayout,
        st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=2).map(tuple),
        st.just(False),
    ),
)
opened = st.builds(AutoLayout, spare=st.integers(0, 4), replicas=st.sampled_from(["auto", 1]))
# Three and more seldom fit, and the search for an open one takes a while.
layouts = st.lists(decided, min_size=1, max_size=3) | st.tuples(decided, opened).map(list)
bases = st.lists(
    st.integers(1024, 65000) | st.integers(8000, 8006), min_size=3, max_size=3, unique=True
)


def asked(layouts, bases):
    return [
        PlanRequest(
            dataclasses.replace(
                deployment("small", version="0.33.0", max_model_len=4096),
                name=f"d{index}",
                layout=layout,
                base_port=base,
            ),
            MODEL,
        )
        for index, (layout, base) in enumerate(zip(layouts, bases, strict=False))
    ]


def attempt(wanted, topology, present=()):
    """Return the plans by name, or the codes of the refusal."""
    try:
        plans = build_plans(wanted, topology, present)
    except ApiaryError as refusal:
        return {one.code for one in refusal.findings if one.severity == "error"}
    return {plan.deployment.name: plan for plan in plans}


def check_apart(plans, topology):
    """Check that replicas share no GPU, no port and no name, and no port is the kernel's."""
    replicas = [one for plan in plans for one in plan.replicas]
    gpus = [key for one in replicas for key in one.gpus]
    assert len(set(gpus)) == len(gpus)
    assert set(gpus) <= set(topology.by_key)
    assert len({one.unit for one in replicas}) == len(replicas)
    taken = [one.port for one in replicas]
    taken += [one.internal_port + more for one in replicas for more in range(block_size())]
    assert len(set(taken)) == len(taken)
    assert max(taken) < 65536
    range_of = knowledge("ports.yml")["ephemeral"]
    assert all(one.internal_port + block_size() <= range_of["first"] for one in replicas)


@given(ports, st.data())
def test_blocks_of_ports_never_meet(api_ports, data):
    count = data.draw(st.integers(0, len(api_ports) - 1))
    others, mine = api_ports[:count], api_ports[count:]
    theirs = internal_ports(others, mine)
    blocks = internal_ports(mine, others, theirs.values())
    assert set(blocks) == set(mine)
    own = [first + more for first in (*blocks.values(), *theirs.values()) for more in range(16)]
    assert len(set(own)) == len(own)
    assert not set(own) & set(api_ports)
    assert internal_ports(data.draw(st.permutations(mine)), others, theirs.values()) == blocks


@given(layouts, bases, st.sampled_from(HOSTS))
@examples(0.6)
def test_deployments_of_a_host_never_meet(layouts, bases, topology):
    found = attempt(asked(layouts, bases), topology)
    if isinstance(found, set):
        assert found
        return
    check_apart(found.values(), topology)
    frees = {plan.placement.free for plan in found.values()}
    assert len(frees) == 1


@given(st.lists(decided, min_size=2, max_size=3), bases, st.sampled_from(HOSTS), st.data())
@examples(0.4)
def test_decided_layouts_fare_the_same_in_any_order(layouts, bases, topology, data):
    wanted = asked(layouts, bases)
    first = attempt(wanted, topology)
    again = attempt(data.draw(st.permutations(wanted)), topology)
    if isinstance(first, set):
        assert first == again
        return
    assert {name: plan.replicas for name, plan in first.items()} == {
        name: plan.replicas for name, plan in again.items()
    }


@given(st.lists(decided, min_size=2, max_size=3), bases, st.sampled_from(HOSTS))
@examples(0.4)
def test_no_cut_of_the_host_for_all_of_them_costs_less(layouts, bases, topology):
    found = attempt(asked(layouts, bases), topology)
    if isinstance(found, set):
        return
    sizes = [len(one.gpus) for plan in found.values() for one in plan.replicas]
    best = place(topology, Request(tuple(sizes)))
    parts = [plan.placement.cost for plan in found.values()]
    assert tuple(map(sum, zip(*parts, strict=True))) == best.cost


@given(decided, decided, bases, st.sampled_from(HOSTS))
@examples(0.4)
def test_planned_one_after_the_other_they_never_meet_either(first, second, bases, topology):
    one, other = asked([first, second], bases)
    try:
        there = build_plan(one.deployment, topology, one.architecture)
    except ApiaryError:
        return
    found = attempt([other], topology, (there,))
    if isinstance(found, dict):
        check_apart([there, *found.values()], topology)
