# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.replica import (
    block_size,
    check_ports,
    internal_ports,
)

from support.demo import demo_deployment, demo_plan
from support.planned import build_plan
from support.topology.topologies import mi325x


def planned(**changes):
    deployment = dataclasses.replace(demo_deployment(), **changes)
    return build_plan(deployment, mi325x(), architecture_of(deployment, "demo"))


def test_each_engine_looks_for_ports_in_a_block_of_its_own():
    first, second = demo_plan().replicas
    assert first.env["VLLM_PORT"] == str(first.internal_port)
    assert second.internal_port - first.internal_port >= block_size()
    reason = next(one for one in first.reasons if one.element == "VLLM_PORT")
    assert reason.rule == "SERVE-PORTS"
    assert "get_open_port" in reason.source


def test_a_block_follows_from_the_api_port_alone():
    together = internal_ports(range(8000, 8064))
    assert all(internal_ports([port])[port] == block for port, block in together.items())


def test_a_port_inside_another_ones_block_moves_the_block():
    (own,) = internal_ports([8000]).values()
    moved = internal_ports([8000, own + 3])
    assert moved[8000] == own + block_size()
    assert internal_ports([8000], blocks_taken=[own + 1])[8000] >= own + 2 * block_size()


def test_no_block_has_the_port_of_a_known_service():
    blocks = internal_ports(range(8000, 8900)).values()
    known = {entry["port"] for entry in knowledge("ports.yml")["known"]}
    assert not known & {port for first in blocks for port in range(first, first + block_size())}


def test_the_operator_may_not_give_all_replicas_one_block():
    engine = dataclasses.replace(demo_deployment().engine, env={"VLLM_PORT": 30000})
    with pytest.raises(ApiaryError) as caught:
        planned(engine=engine)
    assert [one.code for one in caught.value.findings] == ["ENGINE-OVERRIDE-OWNED"]


@pytest.mark.parametrize(
    ("base", "codes"),
    [
        (8000, []),
        (40000, ["PLAN-PORT-EPHEMERAL"]),
        (32767, ["PLAN-PORT-EPHEMERAL"]),
        (32766, []),
        (61000, []),
        (9099, ["PLAN-PORT-KNOWN"]),
        (5000, ["PLAN-PORT-KNOWN"]),
    ],
)
def test_ports_that_something_else_may_have_are_told(base, codes):
    plan = planned(base_port=base)
    found = [one.code for one in plan.findings if one.code.startswith("PLAN-PORT")]
    assert found == codes


def test_a_port_of_another_deployment_is_refused():
    other = planned(name="other", base_port=8001)
    (finding,) = [one for one in check_ports(other, [demo_plan()]) if one.severity == "error"]
    assert finding.code == "PLAN-PORT-TAKEN"
    assert "8001" in finding.message
    assert "apiary-qwen3-235b-1.service" in finding.message
