# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cut is the least of all cuts, covers what it should and follows the GPUs, not their names."""

import dataclasses
import itertools

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.search import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Cost
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)
from hypothesis import given
from hypothesis import strategies as st

from support.topologies import bdf


@st.composite
def topologies(draw):
    count = draw(st.sampled_from([2, 4, 6, 8]))
    keys = [bdf(0x10 + index) for index in range(count)]
    gpus = tuple(Gpu(key, numa_node=draw(st.integers(0, 1))) for key in keys)
    kinds = st.one_of(
        st.none(),
        st.tuples(st.just("xgmi"), st.sampled_from([None, 15, 30, 45])),
        st.tuples(st.just("pcie"), st.sampled_from([None, 40, 52, 72])),
    )
    links = []
    for a, b in itertools.combinations(keys, 2):
        kind = draw(kinds)
        if kind is not None:
            links.append(Link(a, b, kind[0], 1, kind[1]))
    nodes = tuple(NumaNode(number, f"{number * 8}-{number * 8 + 7}") for number in range(2))
    return Topology("host", gpus, tuple(links), nodes)


def cost_of_cut(topology, cut):
    """The cost by its definition, with no search."""
    known = [link.weight for link in topology.links if link.type == "xgmi" and link.weight]
    worst = max(known, default=0)
    total = Cost()
    for members in cut:
        for a, b in itertools.combinations(members, 2):
            link = topology.link(a, b)
            crossing = int(topology.by_key[a].numa_node != topology.by_key[b].numa_node)
            if link is not None and link.type == "xgmi":
                total += Cost(0, 0, link.weight or worst, crossing)
            else:
                weight = link.weight if link is not None and link.weight is not None else 255
                total += Cost(1, weight, 0, crossing)
    return total


def all_cuts(keys, size, replicas):
    if replicas == 0:
        yield ()
        return
    for members in itertools.combinations(keys, size):
        rest = [key for key in keys if key not in members and key > members[0]]
        for others in all_cuts(rest, size, replicas - 1):
            yield (members, *others)


@given(topologies(), st.sampled_from([(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (4, 1), (4, 2)]))
def test_no_cut_costs_less(topology, shape):
    size, replicas = shape
    count = len(topology.gpus)
    if size * replicas > count or count % size:
        return
    placement = place(topology, size, replicas)
    cuts = sorted(
        (cost_of_cut(topology, cut), cut)
        for cut in all_cuts([gpu.bdf for gpu in topology.gpus], size, replicas)
    )
    assert (placement.cost, tuple(share.gpus for share in placement.replicas)) == cuts[0]
    if len(cuts) > 1:
        assert placement.runner_up.cost == cuts[1][0]


@given(topologies())
def test_replicas_never_overlap_and_nothing_is_lost(topology):
    placement = place(topology, 2, len(topology.gpus) // 2 - 1 or 1)
    taken = [key for share in placement.replicas for key in share.gpus]
    assert sorted([*taken, *placement.free]) == sorted(gpu.bdf for gpu in topology.gpus)


@given(topologies(), st.randoms(use_true_random=False))
def test_relabelling_the_gpus_keeps_the_cost(topology, random):
    names = [gpu.bdf for gpu in topology.gpus]
    shuffled = list(names)
    random.shuffle(shuffled)
    renamed = dict(zip(names, shuffled, strict=True))
    other = dataclasses.replace(
        topology,
        gpus=tuple(
            sorted(
                (dataclasses.replace(gpu, bdf=renamed[gpu.bdf]) for gpu in topology.gpus),
                key=lambda gpu: gpu.bdf,
            )
        ),
        links=tuple(
            dataclasses.replace(
                link,
                a=min(renamed[link.a], renamed[link.b]),
                b=max(renamed[link.a], renamed[link.b]),
            )
            for link in topology.links
        ),
    )
    assert place(other, 2, 1).cost == place(topology, 2, 1).cost


@pytest.mark.parametrize("size", [1, 2, 4])
@given(topology=topologies())
def test_a_further_gpu_never_raises_the_optimum(size, topology):
    if size > len(topology.gpus):
        return
    busy = topology.gpus[-1].bdf
    if size > len(topology.gpus) - 1:
        return
    assert place(topology, size).cost <= place(topology, size, busy=[busy]).cost
