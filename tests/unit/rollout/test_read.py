# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's situation from what it told: keys, nodes, and what routers know."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.read import situation_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.steps import down, host_steps

KEY = "/etc/apiary/x/credentials/VLLM_API_KEY"


def plan(count=1, secrets=(), **more):
    replicas = [
        {"unit": f"apiary-x-{index}.service", "port": 8000 + index, "gpus": [str(index)]}
        for index in range(count)
    ]
    return {"deployment": {"name": "x", "secrets": list(secrets)}, "replicas": replicas, **more}


def situation(before, after, written=(), servers=(), back=False, turn="other"):
    known = {f"x/{name}": {"state": "drain"} for name in servers}
    would = {"turns": dict.fromkeys(written, turn)}
    return situation_of("gpu-001", {"plan": before}, after, would, known, back)


@pytest.mark.parametrize(
    ("before", "after", "written", "expected"),
    [
        (plan(), plan(), (), False),
        (plan(secrets=["VLLM_API_KEY"]), plan(secrets=["VLLM_API_KEY"]), (), False),
        (plan(secrets=["VLLM_API_KEY"]), plan(secrets=["VLLM_API_KEY"]), (KEY,), True),
        (plan(), plan(secrets=["VLLM_API_KEY"]), (), True),
        (plan(secrets=["VLLM_API_KEY"]), plan(), (), True),
        (plan(secrets=["HF_TOKEN"]), plan(), ("/etc/apiary/x/credentials/HF_TOKEN",), False),
        (None, plan(secrets=["VLLM_API_KEY"]), (KEY,), False),  # a fresh host has no old key
    ],
)
def test_another_key_of_the_engine_is_noticed(before, after, written, expected):
    assert situation(before, after, written).engine_key is expected


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("same", (False, False)),  # OLD becomes OLD, NEW: routers go on as they are
        ("accepted", (False, True)),  # OLD, NEW becomes NEW: first the routers
        ("other", (True, False)),  # OLD becomes NEW: whoever has it is refused for a while
    ],
)
def test_a_key_that_replicas_accept_already_changes_without_an_outage(turn, expected):
    asks = plan(secrets=["VLLM_API_KEY"])
    found = situation(asks, asks, (KEY,), turn=turn)
    assert (found.engine_key, found.key_first) == expected


def test_a_replica_may_span_hosts_before_or_after():
    two = {"node": {"rank": 0, "size": 2, "master_address": "a", "hosts": ["a", "b"]}}
    assert situation(plan(), plan(node=None)).nodes == 1
    assert situation(plan(), plan(**two)).nodes == 2
    assert situation(plan(**two), plan()).nodes == 2


def test_what_routers_know_counts_on_the_way_back_alone():
    names = ("gpu-001-1", "gpu-002-0")
    back = situation(plan(1), plan(2), servers=names, back=True)
    assert back.routed == ("apiary-x-1.service",)
    assert situation(plan(1), plan(2), servers=names).routed == ()


def torn(states, **lock):
    told = {"plan": plan(3), "lock": {"owner": "unknown", "since": "unknown", "out": [], **lock}}
    servers = {f"x/gpu-001-{index}": {"state": state} for index, state in enumerate(states)}
    return situation_of("gpu-001", told, plan(3), {}, servers)


def test_what_is_drained_under_a_torn_lock_is_its_runs():
    """It said which; nobody else would ever bring them back."""
    found = torn(["ready", "drain", "maint"], torn=True)
    assert found.parked == ()
    assert found.lock.out == ("apiary-x-1.service", "apiary-x-2.service")
    assert found.lock.dead
    first = host_steps(found).steps[0]
    assert (first.kind, first.undrain) == ("return", ("apiary-x-1.service", "apiary-x-2.service"))


def test_under_a_whole_lock_what_it_does_not_name_is_an_operators():
    found = torn(["ready", "drain", "maint"], out=["apiary-x-1.service"])
    assert found.parked == ("apiary-x-2.service",)
    assert found.lock.out == ("apiary-x-1.service",)
    assert not found.lock.dead


def under(lock, *routers):
    """Return the situation of a host of three replicas, by each router's states and ups."""
    units = [f"apiary-x-{index}.service" for index in range(3)]
    document = {"owner": "dead", "since": "then", "out": [units[index] for index in lock]}
    told = {"plan": plan(3), "serving": units, "lock": document}
    views = [
        {f"x/gpu-001-{index}": {"state": state, "up": up} for index, (state, up) in enumerate(one)}
        for one in routers or [()]
    ]
    return situation_of("gpu-001", told, plan(3), {}, views[0], others=views[1:])


UP, DRAINED, DOWN = ("ready", True), ("drain", True), ("ready", False)


@pytest.mark.parametrize(
    ("routers", "out"),
    [
        ([(UP, UP, UP), (UP, UP, UP)], []),  # routers ended a dead run's drains
        ([(UP, DRAINED, UP), (UP, DRAINED, UP)], [1]),
        ([(UP, UP, UP), (UP, DRAINED, UP)], [1]),  # one of them not yet
        ([(UP, DOWN, UP), (UP, UP, UP)], [1]),
        ([], [1]),  # no router answers
    ],
)
def test_what_routers_use_again_is_not_out_any_more(routers, out):
    """A lock outlives the run that died; what it had drained may serve since."""
    found = under([1], *routers)
    assert found.lock.out == tuple(f"apiary-x-{one}.service" for one in out)
    assert down(found) == set(found.lock.out)
