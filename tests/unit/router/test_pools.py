# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.replica import block_size
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Node
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import render_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.unit import launch_spec
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.fleet import check_change
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import (
    PlannedHost,
    pools_from_plans,
    server_ids,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    Router,
    RouterSettings,
)

from support.demo import demo_plan


def planned(number=1, name=None, model=None, address=None, version=None, **changes):
    """The demo's plan on a host, or one of another deployment."""
    plan = demo_plan()
    deployment = plan.deployment
    if name:
        deployment = replace(deployment, name=name)
    if model:
        deployment = replace(deployment, model=replace(deployment.model, name=model))
    if version:
        deployment = replace(deployment, engine=replace(deployment.engine, version=version))
    plan = replace(plan, deployment=deployment, **changes)
    return PlannedHost(f"gpu-{number:03}", address or f"10.0.0.{number}", plan)


def other_ports(plans, base):
    """The replicas of a plan at other ports."""
    replicas = demo_plan().replicas
    moved = tuple(replace(one, port=base + index) for index, one in enumerate(replicas))
    return replace(plans, plan=replace(plans.plan, replicas=moved))


def codes(plans, **settings):
    _pools, findings = pools_from_plans(plans, RouterSettings(**settings))
    return [(finding.code, finding.severity) for finding in findings]


def test_routers_ask_where_the_supervisor_answers():
    one = planned()
    [pool], _findings = pools_from_plans([one], RouterSettings())
    specs = [launch_spec(one.plan, replica, at) for at, replica in enumerate(one.plan.replicas)]
    assert [server.agent_port for server in pool.servers] == [spec.agent_port for spec in specs]
    for replica, spec in zip(one.plan.replicas, specs, strict=True):
        assert spec.agent_port == replica.internal_port + block_size() - 1


def test_a_replica_over_hosts_is_asked_at_its_first_host_alone():
    plan = demo_plan()
    replica = replace(plan.replicas[0], internal_port=None, master_port=12000)
    nodes = [Node(rank, 2, "10.0.0.1", ("a", "b")) for rank in (0, 1)]
    first, second = (replace(plan, replicas=(replica,), node=node) for node in nodes)
    assert launch_spec(first, replica, 0).agent_port == 12000 + block_size() - 1
    assert launch_spec(second, replica, 0).agent_port is None


def test_a_plan_of_before_has_no_agent():
    """Its supervisor tells nobody; a server that nobody calls up again would stay down."""
    plan = demo_plan()
    before = tuple(replace(one, internal_port=None) for one in plan.replicas)
    plan = replace(plan, replicas=before)
    [pool], _findings = pools_from_plans([PlannedHost("a", "10.0.0.1", plan)], RouterSettings())
    assert {server.agent_port for server in pool.servers} == {None}
    assert launch_spec(plan, before[0], 0).agent_port is None
    text = render_router(Router(RouterSettings(), (pool,)))[0].content
    assert "agent" not in text


def test_a_pool_has_every_replica_of_every_host():
    [pool], findings = pools_from_plans([planned(2), planned(1)], RouterSettings())
    assert findings == ()
    assert (pool.deployment, pool.port) == ("qwen3-235b", 8080)
    assert pool.model == "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
    assert [(one.name, one.address, one.port) for one in pool.servers] == [
        ("gpu-001-0", "10.0.0.1", 8000),
        ("gpu-001-1", "10.0.0.1", 8001),
        ("gpu-002-0", "10.0.0.2", 8000),
        ("gpu-002-1", "10.0.0.2", 8001),
    ]
    assert {one.weight for one in pool.servers} == {100}


def test_the_order_of_the_plans_changes_nothing():
    plans = [planned(number) for number in range(1, 6)]
    assert pools_from_plans(plans, RouterSettings()) == pools_from_plans(
        plans[::-1], RouterSettings()
    )


def test_a_host_more_changes_nothing_for_the_others():
    few, _none = pools_from_plans([planned(1), planned(2)], RouterSettings())
    many, _none = pools_from_plans([planned(1), planned(2), planned(3)], RouterSettings())
    assert set(few[0].servers) < set(many[0].servers)


def test_each_deployment_has_a_port_of_its_own():
    second = other_ports(planned(1, name="b"), 8100)
    pools, findings = pools_from_plans([second, planned(1, name="a")], RouterSettings())
    assert [(pool.deployment, pool.port) for pool in pools] == [("a", 8080), ("b", 8081)]
    pools, _none = pools_from_plans(
        [second, planned(1, name="a")], RouterSettings(ports={"b": 8080})
    )
    assert [pool.port for pool in pools] == [8081, 8080]
    assert findings == ()


def test_a_port_that_is_taken_is_refused():
    second = other_ports(planned(1, name="b"), 8100)
    plans = [planned(1, name="a"), second]
    assert codes(plans, ports={"a": 9000, "b": 9000}) == [("ROUTER-PORT", "error")] * 2
    assert codes(plans, ports={"a": 8405}) == [("ROUTER-PORT", "error")]
    assert codes(plans, first_port=65535) == [("ROUTER-PORT", "error")]


def test_two_models_under_one_name_are_refused():
    assert codes([planned(1), planned(2, model="other/model")]) == [("ROUTER-MODELS", "error")]


def test_two_replicas_at_one_address_are_refused():
    assert ("ROUTER-ADDRESS", "error") in codes([planned(1), planned(2, address="10.0.0.1")])


def test_no_replica_is_refused():
    assert codes([]) == [("ROUTER-NO-REPLICAS", "error")]
    assert codes([planned(replicas=())]) == [("ROUTER-NO-REPLICAS", "error")]


def test_two_versions_are_said():
    assert codes([planned(1), planned(2, version="0.32.0")]) == [("ROUTER-VERSIONS", "info")]


def test_a_smaller_replica_gets_a_smaller_share():
    plan = demo_plan()
    small = tuple(replace(one, kv_tokens=one.kv_tokens // 4) for one in plan.replicas)
    [pool], _none = pools_from_plans([planned(1), planned(2, replicas=small)], RouterSettings())
    assert [one.weight for one in pool.servers] == [100, 100, 25, 25]


def test_where_a_pool_is_unknown_the_gpus_decide():
    plan = demo_plan()
    unknown = tuple(
        replace(one, kv_tokens=None, gpus=one.gpus[: 2 + 2 * index])
        for index, one in enumerate(plan.replicas)
    )
    [pool], _none = pools_from_plans([planned(1, replicas=unknown)], RouterSettings())
    assert [one.weight for one in pool.servers] == [50, 100]


@pytest.mark.parametrize(
    ("argv", "settings", "expected"),
    [
        ((), {}, 1024),
        (("--max-num-seqs", "48"), {}, 48),
        (("--max-num-seqs=48",), {}, 48),
        (("--max-num-seqs", "48"), {"active_routers": 2}, 24),
        (("--max-num-seqs", "3"), {"active_routers": 2}, 2),
        (("--max-num-seqs", "48"), {"queueing": Queueing(concurrency=7)}, 7),
    ],
)
def test_concurrency_is_the_engines_own(argv, settings, expected):
    replicas = tuple(replace(one, argv=(*one.argv, *argv)) for one in demo_plan().replicas)
    [pool], _none = pools_from_plans([planned(1, replicas=replicas)], RouterSettings(**settings))
    assert {one.concurrency for one in pool.servers} == {expected}


def serving(number, name, *argv):
    """A deployment whose engines are started with these arguments."""
    one = planned(number, name)
    replicas = tuple(
        replace(each, argv=(*argv, "--port", str(each.port))) for each in one.plan.replicas
    )
    return replace(one, plan=replace(one.plan, replicas=replicas))


NAME, ADAPTERS = "--served-model-name", "--lora-modules"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",)),
        ((NAME, "org/a"), ("org/a",)),
        ((NAME, "org/a", "alias"), ("org/a", "alias")),
        ((f"{NAME}=org/a",), ("org/a",)),
        ((NAME, "a", ADAPTERS, "sql=/srv/sql", '{"path": "/x", "name": "c"}'), ("a", "sql", "c")),
        ((NAME, "a", ADAPTERS, "nonsense"), ("a",)),
    ],
)
def test_a_pool_has_every_name_that_its_engines_answer_to(argv, expected):
    [pool], _findings = pools_from_plans([serving(1, "a", *argv)], RouterSettings())
    assert pool.names == expected


def test_in_a_rollout_both_names_are_the_deployments():
    plans = [serving(1, "a", NAME, "old"), serving(2, "a", NAME, "new")]
    [pool], _findings = pools_from_plans(plans, RouterSettings())
    assert pool.names == ("old", "new")


def test_one_name_of_two_deployments_is_refused_where_they_have_a_port_in_common():
    plans = [serving(1, "a", NAME, "org/a", "chat"), serving(2, "b", NAME, "chat")]
    assert codes(plans) == []
    _pools, [finding] = pools_from_plans(plans, RouterSettings(shared_port=8000))
    assert (finding.code, finding.subject) == ("ROUTER-MODEL-TWICE", "chat")
    assert finding.message == "is a model of a, b"


def test_the_port_of_all_models_is_no_deployments():
    plans = [serving(1, "a", NAME, "a"), serving(2, "b", NAME, "b")]
    pools, findings = pools_from_plans(plans, RouterSettings(shared_port=8080))
    assert [pool.port for pool in pools] == [8081, 8082]
    assert findings == ()
    twice = [("ROUTER-PORT", "error")]
    assert codes(plans, shared_port=9000, ports={"a": 9000}) == twice * 2
    assert codes(plans, shared_port=8405) == twice
    assert codes(plans, shared_port=0) == []


def test_ids_that_meet_are_told_apart():
    """HAProxy's ring has 2^20 places to begin at: names meet sooner than one thinks."""
    names = [f"host-{number}-0" for number in range(3000)]
    ids = server_ids(names)
    assert len(set(ids.values())) == len(names)
    assert all(0 < number < 1 << 20 for number in ids.values())
    assert ids == server_ids(reversed(names))


def test_of_a_replica_over_hosts_only_the_first_answers():
    hosts = ("gpu-001", "gpu-002")
    plans = [planned(rank + 1, node=Node(rank, 2, "10.0.0.1", hosts)) for rank in range(len(hosts))]
    [pool], _none = pools_from_plans(plans, RouterSettings())
    assert {server.host for server in pool.servers} == {"gpu-001"}


def test_engines_with_a_key_are_marked():
    plan = demo_plan()
    deployment = replace(plan.deployment, secrets=("VLLM_API_KEY",))
    [pool], _none = pools_from_plans(
        [PlannedHost("gpu-001", "10.0.0.1", replace(plan, deployment=deployment))],
        RouterSettings(),
    )
    assert pool.engine_key


def test_the_document_survives_json():
    pools, findings = pools_from_plans([planned(1)], RouterSettings())
    router = Router(RouterSettings(), pools, findings)
    assert from_document(Router, json.loads(dumps(router)), "router.json") == router


@pytest.mark.parametrize(("left", "found"), [(4, 0), (2, 0), (1, 1), (0, 1)])
def test_a_pool_that_loses_most_of_its_replicas_is_refused(left, found):
    pools, _none = pools_from_plans([planned(1), planned(2)], RouterSettings())
    before = Router(RouterSettings(), pools)
    kept = replace(pools[0], servers=pools[0].servers[:left])
    after = Router(RouterSettings(), (kept,) if left else ())
    assert [one.code for one in check_change(before, after)] == ["ROUTER-SHRUNK"] * found
    meant = replace(after, settings=RouterSettings(allow_removed=True))
    assert check_change(before, meant) == ()


@pytest.mark.parametrize(
    ("config", "large"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "llava", "vision_config": {"hidden_size": 8}}, True),
        ({"model_type": "voxtral", "audio_config": {"hidden_size": 8}}, True),
        ({"model_type": "whisper", "num_mel_bins": 128}, True),
    ],
)
def test_a_model_that_takes_images_or_recordings_gets_larger_requests(config, large):
    model = read_config(json.dumps(config), "config.json")
    [pool], _findings = pools_from_plans(
        [replace(planned(), plan=replace(planned().plan, model=model))], RouterSettings()
    )
    assert pool.images is large
