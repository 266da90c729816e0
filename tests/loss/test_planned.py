# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator does on purpose costs no request, and sessions stay where they are."""

from loss.fleet import await_true
from loss.load import under

RATE = 30.0


def nothing_failed(report, least=30):
    assert len(report.outcomes) >= least
    assert report.failed == [], f"{len(report.failed)} failed: {report.failed[:3]}"


def test_sessions_stay_over_a_reload_and_at_both_routers(whole, told):
    """Every key has one replica, whichever router is asked, before and after a reload."""
    with under(whole.load(rate=60, seconds=60, keyed=1.0, keys=60, tokens=4)) as running:
        await_true(lambda: running.now() > 5, 10, "keys were seen")
        for router in whole.routers:
            whole.run(router, "systemctl reload haproxy")
        await_true(lambda: running.now() > 10, 15, "keys were seen again")
    report = told("reload of both routers, keyed", running.report())
    nothing_failed(report)
    homes = report.homes()
    requests = [one for one in report.of("ok") if one.key]
    usual = {key: max(told, key=told.get) for key, told in counted(requests).items()}
    moved = [one for one in requests if one.replica != usual[one.key]]
    assert len(moved) <= len(requests) * 0.001, f"{len(moved)} of {len(requests)} moved"
    assert len(homes) >= 50
    assert set().union(*homes.values()) == {replica.place for replica in whole.replicas}
    routers = {one.router for one in requests}
    assert len(routers) == 2


def counted(requests):
    """How often each key was answered by each replica."""
    counts = {}
    for one in requests:
        places = counts.setdefault(one.key, {})
        places[one.replica] = places.get(one.replica, 0) + 1
    return counts


def test_routers_that_reload_again_and_again(whole, told):
    with under(whole.load(rate=RATE)) as running:
        for _ in range(3):
            for router in whole.routers:
                whole.run(router, "systemctl reload haproxy")
                await_true(lambda now=running.now(): running.now() > now + 0.5, 5, "some load")
    nothing_failed(told("six reloads of routers", running.report()))


def test_a_host_that_is_drained_and_comes_back(whole, told):
    host = whole.replicas[-1].host
    servers = {replica.name for replica in whole.replicas if replica.host == host}
    with under(whole.load(rate=RATE, seconds=120)) as running:
        whole.playbook("drain", "-e", f"target={host}")
        drained = running.now()
        assert all(not servers & whole.up(router) for router in whole.routers)
        await_true(lambda: running.now() > drained + 1, 5, "some load")
        during = [one for one in running.report().outcomes if one.started > drained]
        whole.playbook("undrain", "-e", f"target={host}")
        whole.await_whole()
    nothing_failed(told("a host drained and back", running.report()))
    assert during
    assert {one.replica.split(":")[0] for one in during} == {whole.replicas[0].host}


def test_a_rolling_update_of_every_replica(whole, told):
    before = {replica.name: whole.show(replica, "MainPID") for replica in whole.replicas}
    with under(whole.load(rate=RATE, seconds=300)) as running:
        whole.playbook("rollout", "-e", "loss_batched_tokens=16384")
        took = running.now()
        whole.await_whole()
    report = told(f"rolling update of 4 replicas ({took:.0f} s)", running.report())
    nothing_failed(report)
    after = {replica.name: whole.show(replica, "MainPID") for replica in whole.replicas}
    assert all(after[name] != before[name] for name in before)
    for replica in whole.replicas:
        argv = whole.show(replica, "ExecStart")["ExecStart"]
        assert "--max-num-batched-tokens 16384" in argv


def test_a_router_that_is_stopped_while_clients_know_both(whole, told):
    first = whole.routers[0]
    with under(whole.load(rate=RATE)) as running:
        whole.run(first, "systemctl stop haproxy")
        stopped = running.now()
        await_true(lambda: running.now() > stopped + 2, 5, "some load")
        whole.run(first, "systemctl start haproxy")
        await_true(lambda: whole.up(first), 30, "the router is back")
    nothing_failed(told("a router stopped and back, both known", running.report()))
