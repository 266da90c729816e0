# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the inventory: hosts that make a group agree on it, and no host is in two."""

import dataclasses

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.nodes import Member, node_of
from hypothesis import given
from hypothesis import strategies as st

from support.engines import LLAMA, deployment

fleets = st.lists(
    st.tuples(st.sampled_from([None, None, "a", "b"]), st.booleans()), min_size=1, max_size=12
)


@given(fleets, st.integers(2, 4))
def test_hosts_agree_on_their_group(fleet, size):
    asked = dataclasses.replace(
        deployment(LLAMA), layout=Layout(8, pipeline_parallel_size=size, nodes=size)
    )
    members = [
        Member(f"gpu-{number}", f"10.0.0.{number}", group, asked if serves else None)
        for number, (group, serves) in enumerate(fleet, 1)
    ]
    found, refusals = {}, []
    for one in members:
        try:
            found[one.host] = node_of(one.host, members, asked)
        except ApiaryError as refusal:
            refusals += refusal.findings
    assert {item.code for item in refusals} <= {"PLAN-NODES-GROUP"}
    for host, node in found.items():
        assert node.hosts[node.rank] == host
        assert len(node.hosts) == node.size == size
        assert {found[other].hosts for other in node.hosts} == {node.hosts}
        assert {found[other].master_address for other in node.hosts} == {node.master_address}
    alone = [one for one in members if one.deployment and one.group is None]
    grouped = [one for one in alone if one.host in found]
    assert len(grouped) == len(alone) // size * size
