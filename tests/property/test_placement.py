# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cut is the least of all cuts, covers what it should and follows the GPUs, not their names."""

import dataclasses
import itertools
from unittest import mock

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement import exact
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.costs import COSTS
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from support.examples import examples
from support.topology.topologies import bdf

KINDS = st.one_of(
    st.none(),
    st.tuples(
        st.just("xgmi"),
        st.sampled_from([None, 15, 30, 45]),
        st.sampled_from([None, (50000, 50000), (50000, 200000)]),
    ),
    st.tuples(st.just("pcie"), st.sampled_from([None, 40, 52, 72]), st.none()),
)
REGULAR = ("xgmi", 15, (50000, 50000))


@st.composite
def topologies(draw, most=7):
    """Small hosts: irregular ones, and such in which many devices are alike."""
    count = draw(st.integers(2, most))
    parts = draw(st.sampled_from([1, 1, 2, 3]))
    gpus = tuple(
        Gpu(
            bdf(0x10 + place // parts),
            partition=place % parts,
            numa_node=draw(st.sampled_from([0, 0, 1, None])),
        )
        for place in range(count)
    )
    topology = Topology("host", gpus)
    common = draw(KINDS)
    regular = draw(st.booleans())
    links = []
    for a, b in itertools.combinations(sorted(topology.by_key), 2):
        kind = common if regular and draw(st.integers(0, 5)) else draw(KINDS)
        if kind is not None:
            links.append(Link(a, b, kind[0], 1, kind[1], kind[2]))
    distances = draw(st.sampled_from([((10, 32), (32, 10)), ((), ())]))
    nodes = tuple(
        NumaNode(number, f"{number * 8}-{number * 8 + 7}", None, distances[number])
        for number in range(2)
    )
    return dataclasses.replace(topology, links=tuple(links), numa_nodes=nodes)


def by_definition(topology, members, cost):
    """The cost of a set by its definition, with no search and none of the search's code."""
    gpus, pairs = topology.by_key, list(itertools.combinations(members, 2))
    links = [topology.link(a, b) for a, b in pairs]
    inside = [gpus[a].bdf == gpus[b].bdf for a, b in pairs]
    nodes = {gpus[key].numa_node for key in members}
    if cost == "device-plugin":
        return (
            sum(
                90
                if link is None
                else (10 if same else 20)
                + {"xgmi": 10, "pcie": 40}[link.type]
                + (10 if gpus[a].numa_node == gpus[b].numa_node else 20)
                for (a, b), link, same in zip(pairs, links, inside, strict=True)
            ),
        )
    xgmi = [link for link in topology.links if link.type == "xgmi"]
    worst = max((link.weight for link in xgmi if link.weight), default=0)
    widths = [link.bandwidth_mb_s[1] for link in xgmi if link.bandwidth_mb_s]
    near = [
        s or (link is not None and link.type == "xgmi")
        for link, s in zip(links, inside, strict=True)
    ]
    joined = [pair for pair, linked in zip(pairs, near, strict=True) if linked]
    hives = {key: {key} for key in members}
    for a, b in joined:
        both = hives[a] | hives[b]
        for key in both:
            hives[key] = both
    weights = [
        13 if same else (link.weight or worst)
        for link, same, linked in zip(links, inside, near, strict=True)
        if linked
    ]
    missing = [
        (max(widths, default=0) - (link.bandwidth_mb_s or (0, min(widths, default=0)))[1]) // 1000
        for link, same, linked in zip(links, inside, near, strict=True)
        if linked and not same
    ]
    far = [
        255 if link is None or link.weight is None else link.weight
        for link, linked in zip(links, near, strict=True)
        if not linked
    ]
    known = topology.numa_nodes[0].distances and {0, 1} <= nodes
    return (
        len({frozenset(hive) for hive in hives.values()}) - 1,
        len(far),
        sum(far),
        sum(weights),
        sum(missing),
        len(nodes) - 1,
        32 if known else 0,
    )


def all_cuts(keys, sizes, required):
    """Every way to give each replica, in order, its GPUs."""
    if not sizes:
        yield ()
        return
    for members in itertools.combinations(keys, sizes[0]):
        if required[0] <= set(members):
            rest = [key for key in keys if key not in members]
            for others in all_cuts(rest, sizes[1:], required[1:]):
                yield (members, *others)


def total(topology, cut, cost):
    return tuple(map(sum, zip(*(by_definition(topology, one, cost) for one in cut), strict=True)))


def shares(placement):
    return [share.gpus for share in placement.replicas]


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("cost", COSTS)
@given(topology=topologies(), sizes=SIZES, data=st.data())
def test_no_cut_costs_less(cost, topology, sizes, data):
    keys = sorted(topology.by_key)
    assume(sum(sizes) <= len(keys))
    required = [set() for _size in sizes]
    if data.draw(st.booleans()):
        for key in data.draw(st.sets(st.sampled_from(keys), max_size=3)):
            owner = data.draw(st.integers(0, len(sizes) - 1))
            if len(required[owner]) < sizes[owner]:
                required[owner].add(key)
    request = Request(sizes, require=tuple(map(tuple, required)), cost=cost)
    placement = place(topology, request)
    priced = sorted(total(topology, cut, cost) for cut in set(all_cuts(keys, sizes, required)))
    assert placement.exact
    assert placement.cost == priced[0]
    for share, size, names in zip(placement.replicas, sizes, required, strict=True):
        assert len(share.gpus) == size
        assert names <= set(share.gpus)
        assert share.cost == by_definition(topology, share.gpus, cost)
    taken = [key for keys_ in shares(placement) for key in keys_]
    assert sorted([*taken, *placement.free]) == keys


@pytest.mark.parametrize("cost", COSTS)
@given(
    topology=topologies(6), sizes=st.sampled_from([(2,), (2, 2), (1, 2), (3,), (3, 2), (2, 2, 2)])
)
def test_the_runner_up_is_the_next_best_of_another_shape(cost, topology, sizes):
    """Every cut that is better than the runner-up costs what the best one costs."""
    keys = sorted(topology.by_key)
    assume(sum(sizes) <= len(keys))
    placement = place(topology, Request(sizes, cost=cost))
    prices = {total(topology, cut, cost) for cut in all_cuts(keys, sizes, [set()] * len(sizes))}
    if placement.runner_up is None:
        assert len(prices) == 1
        return
    assert placement.runner_up.cost == total(topology, placement.runner_up.replicas, cost)
    assert sorted(map(sorted, placement.runner_up.replicas)) != sorted(
        map(sorted, shares(placement))
    )
    if not placement.runner_up.reason.endswith("is"):
        between = {price for price in prices if placement.cost < price < placement.runner_up.cost}
        assert not between


@given(topologies(), SIZES, st.randoms(use_true_random=False), st.sampled_from(list(COSTS)))
def test_relabelling_the_gpus_relabels_the_answer(topology, sizes, random, cost):
    assume(sum(sizes) <= len(topology.gpus))
    names = sorted({gpu.bdf for gpu in topology.gpus})
    shuffled = list(names)
    random.shuffle(shuffled)
    renamed = dict(zip(names, shuffled, strict=True))

    def new(key):
        address, mark, part = key.partition("#")
        return renamed[address] + mark + part

    # A lone partition has no mark: names change only among GPUs of as many partitions.
    counts = {name: sum(gpu.bdf == name for gpu in topology.gpus) for name in names}
    assume(all(counts[old] == counts[now] for old, now in renamed.items()))
    other = dataclasses.replace(
        topology,
        gpus=tuple(dataclasses.replace(gpu, bdf=renamed[gpu.bdf]) for gpu in topology.gpus),
        links=tuple(
            dataclasses.replace(
                link, a=min(new(link.a), new(link.b)), b=max(new(link.a), new(link.b))
            )
            for link in topology.links
        ),
    )
    here, there = (place(one, Request(sizes, cost=cost)) for one in (topology, other))
    assert here.cost == there.cost
    assert here.exact == there.exact
    assert total(other, [tuple(map(new, keys)) for keys in shares(here)], cost) == there.cost


@given(topologies(), SIZES, st.sampled_from(list(COSTS)), st.data())
def test_a_further_free_gpu_never_raises_the_optimum(topology, sizes, cost, data):
    assume(sum(sizes) < len(topology.gpus))
    busy = data.draw(st.sampled_from(sorted(topology.by_key)))
    more = place(topology, Request(sizes, cost=cost))
    assert more.cost <= place(topology, Request(sizes, busy=(busy,), cost=cost)).cost


@given(topologies(), SIZES, st.data())
def test_who_can_stay_stays(topology, sizes, data):
    assume(sum(sizes) < len(topology.gpus))
    before = place(topology, Request(sizes))
    lost = data.draw(st.sampled_from(sorted(topology.by_key)))
    after = place(topology, Request(sizes, busy=(lost,), keep=tuple(shares(before))))
    for old, new in zip(shares(before), shares(after), strict=True):
        assert new == old or lost in old
    moved = any(lost in keys for keys in shares(before))
    assert ("PLACE-MOVED" in {finding.code for finding in after.findings}) == moved


@given(topologies(), SIZES, st.randoms(use_true_random=False))
def test_the_order_in_which_gpus_are_listed_does_not_matter(topology, sizes, random):
    assume(sum(sizes) <= len(topology.gpus))
    gpus, links = list(topology.gpus), list(topology.links)
    random.shuffle(gpus)
    random.shuffle(links)
    other = dataclasses.replace(topology, gpus=tuple(gpus), links=tuple(links))
    assert shares(place(other, Request(sizes))) == shares(place(topology, Request(sizes)))


@pytest.mark.parametrize("cost", COSTS)
@examples(0.25)
@given(seed=st.randoms(use_true_random=False), count=st.integers(9, 11), sizes=SIZES)
def test_looking_sets_up_finds_what_searching_them_finds(cost, seed, count, sizes):
    """Where no two devices are alike, all sets are listed once; the answer is the same."""
    assume(sum(sizes) <= count)
    keys = [bdf(0x10 + place) for place in range(count)]
    kinds = [("xgmi", weight) for weight in (15, 30, 45)] + [("pcie", far) for far in (40, 52, 72)]
    links = []
    for a, b in itertools.combinations(keys, 2):
        kind, weight = seed.choice(kinds)
        links.append(Link(a, b, kind, 1, weight))
    gpus = tuple(Gpu(key, numa_node=seed.randrange(2)) for key in keys)
    topology = Topology("host", gpus, tuple(links))
    listed = place(topology, Request(sizes, cost=cost))
    with mock.patch.object(exact, "_LISTED_UP_TO", 0):
        searched = place(topology, Request(sizes, cost=cost))
    assert (listed.cost, listed.exact) == (searched.cost, searched.exact)
