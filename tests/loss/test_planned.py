# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator does on purpose costs no request."""

import pytest

from loss.fleet import await_true
from loss.load import under
from loss.moment import at


def nothing_failed(report, least=30):
    assert len(report.outcomes) >= least
    assert report.failed == [], f"{len(report.failed)} failed: {report.failed[:3]}"


# test_affinity reloads both under load as well, tests/router four times.
@pytest.mark.night
def test_routers_that_reload_again_and_again(whole, add_row):
    with under(whole.load()) as running:
        for _ in range(3):
            for router in whole.routers:
                whole.run(router, "systemctl reload haproxy")
                running.go_on(0.5)
    nothing_failed(add_row("six reloads of routers", running.report()))


def test_a_host_that_is_drained_and_comes_back(whole, add_row):
    host = whole.replicas[-1].host
    servers = {replica.name for replica in whole.replicas if replica.host == host}
    with under(whole.load(seconds=120)) as running:
        whole.playbook("drain", "-e", f"target={host}")
        drained = running.now()
        assert all(not servers & whole.up(router) for router in whole.routers)
        running.go_on(1)
        during = [one for one in running.report().outcomes if one.started > drained]
        whole.playbook("undrain", "-e", f"target={host}")
        whole.await_whole()
    nothing_failed(add_row("a host drained and back", running.report()))
    assert during
    assert not servers & {one.replica for one in during}


def test_a_replica_that_is_restarted_without_a_drain(whole, add_row):
    """Nobody tells the routers but the supervisor: an engine that drains refuses with 500."""
    replica = whole.replicas[0]
    before = whole.show(replica, "MainPID")
    with under(whole.load(seconds=120)) as running:
        running.go_on(2)
        whole.run(replica.host, f"systemctl restart {replica.unit}")
        whole.await_whole()
        running.go_on(2)
    assert whole.show(replica, "MainPID") != before
    nothing_failed(add_row("a replica restarted without a drain", running.report()))


def roll(whole, add_row, change, flag):
    """Change one flag of every replica by the rollout playbook, under load."""
    before = {replica.name: whole.show(replica, "MainPID") for replica in whole.replicas}
    with under(whole.load(seconds=600, timeout_seconds=60)) as running:
        whole.playbook("rollout", "-e", change)
        took = running.now()
        whole.await_whole()
    what = f"rolling update of {len(before)} replicas ({took:.0f} s)"
    nothing_failed(add_row(what, running.report()))
    for replica in whole.replicas:
        assert whole.show(replica, "MainPID") != before[replica.name]
        assert flag in whole.show(replica, "ExecStart")["ExecStart"]


def test_a_rolling_update_of_every_replica(whole, add_row):
    roll(whole, add_row, "loss_batched_tokens=16384", "--max-num-batched-tokens 16384")


def test_a_router_that_is_stopped_while_clients_know_both(whole, add_row):
    first = whole.routers[0]
    with under(whole.load()) as running:
        whole.run(first, "systemctl stop haproxy")
        running.go_on(2)
        whole.run(first, "systemctl start haproxy")
        await_true(lambda: whole.up(first), 30, "the router is back")
    nothing_failed(add_row("a router stopped and back, both known", running.report()))


def test_the_router_that_has_the_address_is_stopped(whole, add_row):
    """What is in flight ends, unless that takes longer than the address stays."""
    holder = whole.await_holder()
    with under(whole.load_of_address()) as running:
        with at(running) as moment:
            whole.run(holder, "systemctl stop haproxy")
        moved = whole.await_moved(holder)
        before = len(running.report().outcomes)
        await_true(lambda: len(running.report().outcomes) > before + 30, 120, "it serves")
        whole.run(holder, "systemctl start haproxy")
        whole.await_whole()
    report = add_row(f"the router with the address stopped ({moved:.0f} s)", running.report())
    assert len(report.outcomes) >= 30
    # keepalived takes the address away after two checks; on a busy machine some are not done then.
    late = [one for one in report.failed if one.kind != "lost" or not moment.took(one, 0)]
    assert not late, late[:3]
