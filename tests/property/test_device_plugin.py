# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.kubelet import (
    reserved_memory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.node import (
    extra_arguments,
    holds,
    merged,
    with_extra_argument,
    without_extra_argument,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.objects import (
    MIB,
    format_memory,
    parse_memory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    NumaNode,
    Topology,
)
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.lists(st.from_regex(r"--[a-z]+=[a-z0-9/.,<>%]*", fullmatch=True), max_size=4)
VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.sampled_from("abc"), VALUES)


@given(total=st.integers(64 * MIB, 2**42), count=st.integers(1, 16))
def test_reserved_memory_adds_up_exactly(total, count):
    nodes = tuple(NumaNode(node, "0", memory_bytes=2**43) for node in range(count))
    entries = reserved_memory(Topology("h", numa_nodes=nodes), total)
    assert sum(parse_memory(one["limits"]["memory"]) for one in entries) == total
    assert [one["numaNode"] for one in entries] == list(range(count))


@given(size=st.integers(0, 2**44))
def test_a_quantity_reads_back(size):
    assert parse_memory(format_memory(size)) == size


@given(before=WORDS, word=st.just("--config-dir=/x"), rest=st.sampled_from(["", "A=1\n", "# b\n"]))
def test_an_argument_comes_and_goes_and_leaves_the_others(before, word, rest):
    text = rest + "KUBELET_EXTRA_ARGS='" + " ".join(before) + "'\n"
    after = with_extra_argument(text, word)
    assert extra_arguments(after) == (*before, word)
    assert extra_arguments(without_extra_argument(after, word)) == tuple(before)
    assert after.startswith(rest)


@given(base=CONFIGS, over=CONFIGS)
def test_a_merged_configuration_has_all_that_was_laid_on_top(base, over):
    result = merged(base, over)
    assert holds(result, over)
    assert merged(result, over) == result
    assert set(result) == set(base) | set(over)
