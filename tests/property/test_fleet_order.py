# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the fleet and whatever is asked: what the waves of a rollout always keep."""

from collections import Counter
from math import ceil

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.order import (
    Member,
    order_hosts,
)
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.lists(
    st.one_of(
        st.integers(1, 40).map(str),
        st.integers(1, 100).map(lambda percent: f"{percent}%"),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def fleets(draw):
    count = draw(st.integers(1, 30))
    domains = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d"]))
    racks = st.one_of(st.none(), st.sampled_from(["r1", "r2"]))
    return [Member(f"h{number}", draw(domains), draw(racks)) for number in range(count)]


def domains_in(wave, fleet):
    by_name = {one.name: one for one in fleet}
    return Counter(by_name[name].domain or name for name in wave.hosts)


@given(fleets(), SIZES, st.integers(1, 3))
def test_each_host_once_and_never_two_of_one_domain(fleet, sizes, together):
    waves = order_hosts(fleet, sizes, together=together).waves
    assert sorted(name for wave in waves for name in wave.hosts) == sorted(
        one.name for one in fleet
    )
    assert all(wave.hosts for wave in waves)
    assert all(max(domains_in(wave, fleet).values()) <= together for wave in waves)


@given(fleets(), SIZES, st.data())
def test_the_canary_comes_first_and_alone(fleet, sizes, data):
    names = data.draw(
        st.lists(st.sampled_from([one.name for one in fleet]), min_size=1, unique=True)
    )
    waves = order_hosts(fleet, sizes, names).waves
    first = [wave for wave in waves if wave.canary]
    assert waves[: len(first)] == tuple(first)
    assert sorted(name for wave in first for name in wave.hosts) == sorted(names)


@given(fleets(), st.integers(1, 3))
def test_one_batch_of_all_needs_as_few_waves_as_its_largest_domain(fleet, together):
    waves = order_hosts(fleet, ["100%"], together=together).waves
    largest = max(Counter(one.domain or one.name for one in fleet).values())
    assert len(waves) == ceil(largest / together)


@given(fleets(), SIZES)
def test_no_wave_is_larger_than_asked_and_the_answer_is_always_the_same(fleet, sizes):
    order = order_hosts(fleet, sizes)
    assert order == order_hosts(fleet, sizes)
    largest = max(
        int(size) if not size.endswith("%") else max(1, len(fleet) * int(size[:-1]) // 100)
        for size in sizes
    )
    assert all(len(wave.hosts) <= largest for wave in order.waves)
