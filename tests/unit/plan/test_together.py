# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several deployments on one host."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Layout,
    MixedLayout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import ModuleMemory
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    architecture_of,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.together import (
    check_memory,
    others_of,
    running_plans,
    tell_others,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, check_plan

from support.demo import demo_deployment, demo_plan
from support.topology.topologies import mi325x


def asked(name, port, layout, keep=None):
    demo = demo_deployment()
    limits = dataclasses.replace(demo.limits, max_model_len=8192)
    one = dataclasses.replace(demo, name=name, base_port=port, layout=layout, limits=limits)
    return PlanRequest(one, architecture_of(one, "demo"), keep)


def sets(plans):
    return {plan.deployment.name: [one.gpus for one in plan.replicas] for plan in plans}


BIG = asked("big", 8000, Layout(4, 1, True))
PAIR = asked("pair", 8100, Layout(2, 2, True))


def test_deployments_share_a_host_without_meeting():
    big, pair = build_plans([BIG, PAIR], mi325x())
    replicas = [*big.replicas, *pair.replicas]
    gpus = [key for one in replicas for key in one.gpus]
    assert len(set(gpus)) == len(gpus) == 8
    assert len({one.port for one in replicas}) == len({one.internal_port for one in replicas}) == 3
    cpus = [one.cpus for one in replicas]
    assert len(set(cpus)) == 3
    assert big.placement.exact
    assert pair.placement.exact
    assert big.placement.free == ()


def test_the_order_of_the_list_says_nothing():
    one, other = build_plans([BIG, PAIR], mi325x()), build_plans([PAIR, BIG], mi325x())
    assert {plan.deployment.name: plan.replicas for plan in one} == {
        plan.deployment.name: plan.replicas for plan in other
    }


def test_each_part_of_the_cut_has_its_own_cost_and_runner_up():
    big, pair = build_plans([BIG, PAIR], mi325x())
    for plan in (big, pair):
        totals = [
            sum(parts) for parts in zip(*(r.cost for r in plan.placement.replicas), strict=True)
        ]
        assert list(plan.placement.cost) == totals
        assert len(plan.placement.runner_up.replicas) == len(plan.replicas)
        assert "of all deployments" in plan.placement.runner_up.reason


def test_an_open_layout_gets_what_the_others_leave():
    opened = asked("open", 8200, AutoLayout())
    first, big = build_plans([opened, BIG], mi325x())
    assert sum(first.layout.sizes) == 4
    assert not {key for one in first.replicas for key in one.gpus} & set(big.replicas[0].gpus)
    with pytest.raises(ApiaryError) as caught:
        build_plans([opened, asked("open-too", 8300, AutoLayout())], mi325x())
    assert "LAYOUT-NONE" in {one.code for one in caught.value.findings}
    spared = asked("open", 8200, AutoLayout(spare=4))
    parts = build_plans([spared, asked("open-too", 8300, AutoLayout())], mi325x())
    assert [sum(plan.layout.sizes) for plan in parts] == [4, 4]


def test_replicas_keep_their_gpus_by_deployment():
    before = sets(build_plans([BIG, PAIR], mi325x()))
    keep = build_plans([asked("pair", 8100, Layout(2, 2, True))], mi325x())[0]
    both = build_plans([BIG, dataclasses.replace(PAIR, keep=keep)], mi325x())
    assert sets(both)["pair"] == [one.gpus for one in keep.replicas]
    assert all(len(keys) for keys in before.values())
    assert "PLACE-MOVED" not in {one.code for plan in both for one in plan.findings}


@pytest.mark.parametrize(
    ("others", "code", "told"),
    [
        ([asked("big", 8200, Layout(2))], "PLAN-NAME-TWICE", "big"),
        ([asked("b", 8100, Layout(4, 2, True))], "PLAN-TOO-FEW-GPUS", "together 12 GPUs; 8"),
        ([asked("b", 8000, Layout(4, 1, True))], "PLAN-PORT-TAKEN", "8000"),
    ],
)
def test_what_they_share_is_checked_with_one_finding(others, code, told):
    with pytest.raises(ApiaryError) as caught:
        build_plans([BIG, *others], mi325x())
    (finding,) = [one for one in caught.value.findings if one.severity == "error"]
    assert finding.code == code
    assert told in str(finding)


def test_engines_may_not_hold_more_memory_than_the_host_has():
    engine = dataclasses.replace(BIG.deployment.engine, args={"kv-offloading-size": 2000})
    greedy = dataclasses.replace(BIG, deployment=dataclasses.replace(BIG.deployment, engine=engine))
    plans = build_plans([greedy, PAIR], mi325x())
    (finding,) = [one for one in plans[0].findings if one.code == "PLAN-HOST-MEMORY"]
    assert "big 2064 GiB, pair 64 GiB" in finding.message
    nodes = tuple(dataclasses.replace(one, memory_bytes=1 << 41) for one in mi325x().numa_nodes)
    assert not list(check_memory(plans, dataclasses.replace(mi325x(), numa_nodes=nodes)))


def test_tables_in_host_memory_are_held_for_each_replica():
    nodes = tuple(dataclasses.replace(one, memory_bytes=1 << 30) for one in mi325x().numa_nodes)
    topology = dataclasses.replace(mi325x(), numa_nodes=nodes)
    # 200 GiB for each engine and 16 for each GPU, whatever the first engine's size.
    for layout, held in ((Layout(2, 2, True), 464), (MixedLayout((4, 2, 2), True), 728)):
        (plan,) = build_plans([asked("big", 8000, layout)], mi325x())
        each = (200 << 30) // plan.memory.gpus_per_engine
        tables = ModuleMemory("ngram_tables", "host", 196_613_849_600, each)
        plan = dataclasses.replace(plan, memory=dataclasses.replace(plan.memory, modules=(tables,)))
        (finding,) = check_memory([plan], topology)
        assert f"big {held} GiB" in finding.message


def test_a_kept_plan_is_the_same_plan():
    (first,) = build_plans([PAIR], mi325x())
    assert build_plans([dataclasses.replace(PAIR, keep=first)], mi325x()) == (first,)


def test_a_deployment_that_stays_keeps_what_it_has():
    there = build_plans([BIG], mi325x())
    (plan,) = build_plans([asked("new", 8100, Layout(4, 1, True))], mi325x(), there)
    assert not set(plan.replicas[0].gpus) & set(there[0].replicas[0].gpus)
    with pytest.raises(ApiaryError) as caught:
        build_plans([asked("new", 8000, Layout(4, 1, True))], mi325x(), there)
    assert [one.code for one in caught.value.findings] == ["PLAN-PORT-TAKEN"]


def test_others_are_those_that_nobody_asks_for():
    big, pair = build_plans([BIG, PAIR], mi325x())
    assert others_of([pair, big], [BIG.deployment]) == (pair,)
    (finding,) = tell_others((pair,), removed=False)
    assert "apiary-pair-0.service, apiary-pair-1.service of pair" in finding.message
    assert "keep 4 GPUs" in finding.message
    (gone,) = tell_others((pair,), removed=True)
    assert (gone.severity, "removed" in gone.message) == ("info", True)


def test_a_plan_of_another_version_is_told_and_passed_over():
    plans, findings = running_plans(
        [to_document(demo_plan()), {"schema": "apiary.plan/v9", "deployment": {"name": "x"}}], "h"
    )
    assert plans == [demo_plan()]
    assert [one.code for one in findings] == ["PLAN-OTHER-UNREADABLE"]


def test_a_plan_written_before_is_still_read():
    document = to_document(demo_plan())
    for field in ("internal_port", "master_port", "start_timeout_seconds"):
        for replica in document["replicas"]:
            del replica[field]
    del document["node"]
    for field in ("pipeline_parallel_size", "nodes"):
        document["layout"].pop(field, None)
        document["deployment"]["layout"].pop(field, None)
    document["deployment"]["limits"]["start_timeout_seconds"] = 3600
    plan = from_document(Plan, document, "old")
    check_plan(plan, "old")
    assert plan.replicas[0].internal_port is None
