# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a router is to run, from all hosts' plans, hosts without one, and what it runs now."""

import hashlib
import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.fleet import (
    MissingHost,
    api_keys,
    decide_router,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import PlannedHost
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    Router,
    RouterSettings,
)
from hypothesis import given
from hypothesis import strategies as st

from support.demo import demo_plan

SETTINGS = RouterSettings()


def planned(number, name="qwen3-235b"):
    plan = demo_plan()
    plan = replace(plan, deployment=replace(plan.deployment, name=name))
    return PlannedHost(f"gpu-{number:03}", f"10.0.0.{number}", plan)


def fleet(*numbers):
    return [planned(number) for number in numbers]


def missing(number, reason="has no plan"):
    return MissingHost(f"gpu-{number:03}", reason)


def servers(router):
    return {one.name: one for pool in router.pools for one in pool.servers}


def codes(router):
    return sorted({(one.code, one.severity) for one in router.findings})


def test_every_host_with_a_plan_is_routed_to():
    router = decide_router(SETTINGS, fleet(1, 2))
    assert sorted(servers(router)) == ["gpu-001-0", "gpu-001-1", "gpu-002-0", "gpu-002-1"]
    assert router.findings == ()


def test_a_host_without_a_plan_is_named_and_left_out():
    router = decide_router(SETTINGS, fleet(1), [missing(2, "is quarantined")])
    [finding] = router.findings
    assert (finding.code, finding.severity) == ("ROUTER-HOST-MISSING", "warning")
    assert finding.subject == "gpu-002"
    assert "is quarantined; nothing is routed to it" in finding.message


def test_a_limit_holds_for_hosts_without_a_plan_and_one_of_no_deployment_is_named():
    before = decide_router(SETTINGS, fleet(1, 2))
    limits = Queueing(within_slo={"qwen3-235b": 12, "qwne3": 8})
    router = decide_router(replace(SETTINGS, queueing=limits), fleet(1), [missing(2)], before)
    assert {one.concurrency for one in servers(router).values()} == {12}
    found = {one.code: one.subject for one in router.findings}
    assert found["ROUTER-LIMIT-UNKNOWN"] == "qwne3"


def test_a_host_that_is_served_now_keeps_its_replicas_in_their_places():
    before = decide_router(SETTINGS, fleet(1, 2))
    router = decide_router(SETTINGS, fleet(1), [missing(2)], before)
    assert servers(router) == servers(before)
    assert codes(router) == [("ROUTER-HOST-KEPT", "warning")]


def test_an_empty_directory_of_plans_does_not_end_the_service():
    before = decide_router(SETTINGS, fleet(1, 2))
    router = decide_router(SETTINGS, [], [missing(1), missing(2)], before)
    assert router.pools == before.pools


def test_without_plans_and_without_a_router_nothing_is_decided():
    with pytest.raises(ApiaryError, match="ROUTER-NO-REPLICAS"):
        decide_router(SETTINGS, [], [missing(1)])


def test_a_host_that_left_the_inventory_leaves_the_router_by_name():
    before = decide_router(SETTINGS, fleet(1, 2, 3))
    router = decide_router(SETTINGS, fleet(1, 2), (), before)
    assert "gpu-003-0" not in servers(router)
    [finding] = router.findings
    assert (finding.code, finding.subject) == ("ROUTER-SERVER-GONE", "qwen3-235b")
    assert "gpu-003-0, gpu-003-1 leave the router" in finding.message


def test_most_replicas_do_not_leave_at_once_unless_that_is_said():
    before = decide_router(SETTINGS, fleet(1, 2, 3, 4))
    with pytest.raises(ApiaryError, match="ROUTER-SHRUNK"):
        decide_router(SETTINGS, fleet(1), (), before)
    allowed = replace(SETTINGS, allow_removed=True)
    assert len(servers(decide_router(allowed, fleet(1), (), before))) == 2


def test_a_deployment_whose_plan_ended_is_left_out_though_its_host_is_missing_nothing():
    before = decide_router(SETTINGS, [*fleet(1), planned(2, "other")])
    router = decide_router(replace(SETTINGS, allow_removed=True), fleet(1, 2), (), before)
    assert [pool.deployment for pool in router.pools] == ["qwen3-235b"]


def ports(router):
    return {pool.deployment: pool.port for pool in router.pools}


def alpha():
    """Another host's deployment, whose name is the first of all."""
    return planned(2, "alpha")


def test_a_deployment_that_is_added_moves_nobody():
    before = decide_router(SETTINGS, fleet(1))
    after = decide_router(SETTINGS, [*fleet(1), alpha()], (), before)
    assert ports(after) == {"qwen3-235b": 8080, "alpha": 8081}
    assert after.findings == ()
    # Nor does a later setting of the first port, nor the end of another deployment.
    moved = replace(SETTINGS, first_port=9000)
    later = decide_router(moved, [*fleet(1), alpha(), planned(3, "beta")], (), after)
    assert ports(later) == {"qwen3-235b": 8080, "alpha": 8081, "beta": 9000}
    removed = replace(SETTINGS, allow_removed=True)
    without = decide_router(removed, [alpha(), planned(3, "gamma")], (), after)
    # Clients of the one that ended still ask at its port.
    assert ports(without) == {"alpha": 8081, "gamma": 8082}


def test_a_new_router_takes_the_ports_of_the_others():
    first = decide_router(SETTINGS, fleet(1))
    first = decide_router(SETTINGS, [*fleet(1), alpha()], (), first)
    new = decide_router(SETTINGS, [*fleet(1), alpha()], peers=[first])
    assert ports(new) == ports(first)
    # Where they differ, a router stays as it is.
    other = decide_router(replace(SETTINGS, first_port=9000), fleet(1))
    assert ports(decide_router(SETTINGS, fleet(1), (), other, peers=[first])) == ports(other)


def test_a_hosts_port_is_not_given_away_while_its_plan_is_missing():
    before = decide_router(SETTINGS, fleet(1))
    router = decide_router(SETTINGS, [alpha()], [missing(1)], before)
    assert ports(router) == {"alpha": 8081, "qwen3-235b": 8080}


@pytest.mark.parametrize("given", [{"ports": {"alpha": 8080}}, {"admin_port": 8080}])
def test_a_setting_that_moves_a_deployment_is_refused_unless_its_own_port_is_named(given):
    before = decide_router(SETTINGS, fleet(1))
    plans = [*fleet(1), alpha()]
    with pytest.raises(ApiaryError) as refused:
        decide_router(replace(SETTINGS, **given), plans, (), before)
    [finding] = refused.value.findings
    assert (finding.code, finding.subject) == ("ROUTER-PORT-MOVED", "qwen3-235b")
    assert "would move from port 8080 to 808" in finding.message
    meant = {**given, "ports": {**given.get("ports", {}), "qwen3-235b": 8090}}
    after = decide_router(replace(SETTINGS, **meant), plans, (), before)
    assert ports(after)["qwen3-235b"] == 8090


def test_every_refusal_is_told_at_once():
    bad = replace(SETTINGS, listen=(), admin_port=0)
    with pytest.raises(ApiaryError) as refused:
        decide_router(bad, fleet(1))
    assert len(refused.value.findings) >= 2


@given(st.sets(st.integers(1, 8), min_size=1), st.sets(st.integers(1, 8)))
def test_deciding_again_changes_nothing(present, gone):
    before = decide_router(SETTINGS, fleet(*sorted(present)))
    left = fleet(*sorted(present - gone))
    absent = [missing(number) for number in sorted(present & gone)]
    once = decide_router(SETTINGS, left, absent, before)
    read = from_document(Router, json.loads(dumps(once)), "router.json")
    assert servers(once).keys() == servers(before).keys()
    assert decide_router(SETTINGS, left, absent, read).pools == once.pools


def test_engines_that_ask_for_a_key_are_not_put_behind_a_router_without_it():
    locked = [planned(1)]
    plan = locked[0].plan
    deployment = replace(plan.deployment, secrets=("VLLM_API_KEY",))
    locked = [replace(locked[0], plan=replace(plan, deployment=deployment))]
    keyed = replace(SETTINGS, keys=api_keys({"lab": "k" * 16}))
    with pytest.raises(ApiaryError, match="ROUTER-ENGINE-KEY"):
        decide_router(keyed, locked)
    assert decide_router(keyed, locked, engine_keys=frozenset({"qwen3-235b"})).findings == ()
    # Without keys of its own it hands on what clients send.
    assert decide_router(SETTINGS, locked).findings == ()


def test_of_a_key_only_its_digest_is_left():
    [few, lab] = api_keys({"lab": "k" * 16, "few": {"key": "f" * 16, "requests_per_minute": 5}})
    assert (few.name, few.requests_per_minute) == ("few", 5)
    assert lab.sha256 == hashlib.sha256(b"k" * 16).hexdigest()
    assert "k" * 16 not in repr(lab)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"a": "too-short"}, "has 9 characters"),
        ({"a": 12345678901234567}, "is no text"),
        ({"a": {"key": "k" * 16, "rate": 3}}, "has rate"),
        ({"a": "k" * 16, "b": "k" * 16}, "two names have the same key"),
    ],
)
def test_a_key_that_is_none_is_refused_and_not_shown(keys, expected):
    with pytest.raises(ApiaryError) as refused:
        api_keys(keys)
    assert expected in str(refused.value)
    assert "too-short" not in str(refused.value)


def test_replicas_that_everybody_reaches_past_the_router_are_told():
    """Of hosts that the inventory does not have nobody knows."""
    hosts = [
        replace(one, ports_closed=closed)
        for one, closed in zip(fleet(1, 2, 3), (False, True, None), strict=True)
    ]
    router = decide_router(SETTINGS, hosts)
    (found,) = [one for one in router.findings if one.code == "ROUTER-BYPASS"]
    assert (found.severity, found.subject) == ("warning", "qwen3-235b")
    assert "gpu-001" in found.message
    assert "gpu-002" not in found.message
    assert "gpu-003" not in found.message
    assert "ROUTER-BYPASS" not in {one.code for one in decide_router(SETTINGS, hosts[1:]).findings}
