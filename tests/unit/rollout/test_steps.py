# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.plan import (
    plan_rollout,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.read import must_show_key
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.steps import host_steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.types import (
    Lock,
    Settings,
    Situation,
    Slot,
)

ZERO, ONE = "apiary-x-0.service", "apiary-x-1.service"


def slots(*gpus, port=8000):
    return tuple(
        Slot(f"apiary-x-{index}.service", port + index, tuple(devices.split()))
        for index, devices in enumerate(gpus)
    )


TWO = slots("a b", "c d")


def host(name="gpu-001", **changes):
    """A host with two replicas that serve, both of which change."""
    usual = Situation(
        name, TWO, TWO, (ZERO, ONE), files=True, serving=(ZERO, ONE), kept="20260722T101500Z-0"
    )
    return dataclasses.replace(usual, **changes)


def settings(**changes):
    usual = Settings(batches=("1", "50%", "100%"), max_unavailable="25%", failure_budget=0)
    return dataclasses.replace(usual, **changes)


def codes(rollout):
    return {(one.code, one.severity) for one in rollout.findings}


def kinds(situation):
    return [(step.kind, step.drain, step.undrain) for step in host_steps(situation).steps]


def test_a_host_as_wanted_has_nothing_to_do():
    found = host_steps(host(changed=(), files=False))
    assert found.steps == ()
    assert found.out == 0


def test_replicas_in_their_places_are_replaced_one_at_a_time():
    assert kinds(host()) == [
        ("replace", (ZERO,), (ZERO,)),
        ("replace", (ONE,), (ONE,)),
        ("finish", (), ()),
    ]
    assert host_steps(host()).out == 1


def test_an_unchanged_replica_is_not_touched():
    assert kinds(host(changed=(ONE,))) == [("replace", (ONE,), (ONE,)), ("finish", (), ())]


def test_what_no_replica_runs_from_takes_nothing_out():
    found = host_steps(host(changed=()))
    assert [step.kind for step in found.steps] == ["finish"]
    assert found.out == 0


def test_replicas_that_exchange_gpus_change_together():
    moved = host(wanted=slots("c d", "a b"))
    assert kinds(moved) == [("swap", (ZERO, ONE), (ZERO, ONE))]
    assert host_steps(moved).out == 2


def test_an_added_replica_leaves_the_others_alone():
    added = host(wanted=slots("a b", "c d", "e f"), changed=("apiary-x-2.service",))
    assert kinds(added) == [("swap", (), ())]
    assert host_steps(added).steps[0].ask == ("apiary-x-2.service",)
    assert host_steps(added).out == 0


def test_one_that_keeps_its_place_is_replaced_before_the_others_move():
    three = slots("a", "b", "c")
    units = tuple(one.unit for one in three)
    moved = host(
        running=three, wanted=(three[0], *slots("x", "c", "b")[1:]), changed=units, serving=units
    )
    assert kinds(moved) == [
        ("replace", (units[0],), (units[0],)),
        ("swap", units[1:], units[1:]),
    ]


def test_removed_replicas_are_drained_and_do_not_come_back():
    assert kinds(host(wanted=TWO[:1], changed=())) == [("swap", (ONE,), ())]


def test_a_fresh_host_takes_nothing_out():
    assert host_steps(host(running=(), serving=())).out == 0


def test_what_does_not_serve_comes_first_and_costs_nothing():
    broken = host(serving=(ZERO,))
    assert next(step.drain for step in host_steps(broken).steps) == (ONE,)
    assert host_steps(broken).out == 0


def test_what_an_interrupted_run_left_out_is_brought_back():
    left = host(changed=(ONE,), lock=Lock("ann", "today", (ZERO,)))
    assert kinds(left)[0] == ("return", (), (ZERO,))
    assert host_steps(left).steps[0].ask == (ZERO,)


def test_what_an_operator_has_taken_out_stays_out():
    parked = host(parked=(ZERO,))
    assert kinds(parked)[0] == ("replace", (ZERO,), ())


def test_batches_grow_and_the_canary_is_first():
    hosts = [host(f"gpu-{number:03}") for number in range(12)]
    rollout = plan_rollout("x", hosts, settings(batches=("1", "25%"), canary=("gpu-007",)))
    assert rollout.order[0] == "gpu-007"
    assert rollout.batches == (1, 1, 3, 3, 3, 1)
    assert rollout.replicas == 24
    assert rollout.allowed == 6
    assert not rollout.findings


def test_a_batch_is_cut_to_what_may_be_out():
    hosts = [host(f"gpu-{number:03}") for number in range(5)]
    rollout = plan_rollout("x", hosts, settings(batches=("100%",)))  # 10 replicas, 2 may be out
    assert rollout.batches == (2, 2, 1)


def test_replicas_of_other_hosts_count():
    rollout = plan_rollout("x", [host()], settings(elsewhere=10))
    assert (rollout.replicas, rollout.allowed) == (12, 3)


def test_replicas_that_are_out_elsewhere_leave_less_room():
    hosts = [host("a"), host("b")]
    wide = settings(batches=("100%",), elsewhere=4)
    assert plan_rollout("x", hosts, wide).batches == (2,)
    few = dataclasses.replace(wide, down_elsewhere=1)
    assert plan_rollout("x", hosts, few).batches == (1, 1)
    none = dataclasses.replace(wide, down_elsewhere=2)
    assert codes(plan_rollout("x", hosts, none)) == {("ROLLOUT-MAX-UNAVAILABLE", "error")}


def test_the_only_replica_is_not_taken_out():
    alone = host(running=TWO[:1], wanted=TWO[:1], changed=(ZERO,), serving=(ZERO,))
    assert codes(plan_rollout("x", [alone], settings())) == {("ROLLOUT-OUTAGE", "error")}
    allowed = plan_rollout("x", [alone], settings(allow_outage=True))
    assert codes(allowed) == {("ROLLOUT-OUTAGE", "warning")}
    assert allowed.batches == (1,)


def test_a_whole_host_that_is_the_whole_pool_is_an_outage():
    moved = host(wanted=slots("c d", "a b"))
    assert ("ROLLOUT-OUTAGE", "error") in codes(plan_rollout("x", [moved], settings()))


def test_a_whole_host_needs_that_many_to_spare():
    moved = host(wanted=slots("c d", "a b"))
    few = plan_rollout("x", [moved], settings(elsewhere=2))
    assert codes(few) == {("ROLLOUT-MAX-UNAVAILABLE", "error")}
    assert not plan_rollout("x", [moved], settings(elsewhere=6)).findings


def test_new_ports_are_refused_where_there_are_routers():
    moved = host(wanted=slots("a b", "c d", port=9000))
    others = [dataclasses.replace(moved, host=f"gpu-00{number}") for number in range(2, 5)]
    wide = settings(elsewhere=20)
    # 28 replicas, of which 7 may be out until routers follow at the end: three hosts, not four.
    assert not plan_rollout("x", [moved, *others], wide).findings
    routed = dataclasses.replace(wide, routers=True)
    found = plan_rollout("x", [moved, *others], routed)
    assert codes(found) == {("ROLLOUT-NEW-PORTS", "error")}
    few = plan_rollout("x", [moved, *others[:2]], routed)
    assert not few.findings
    assert {step.later for one in few.hosts for step in one.steps} == {(ZERO, ONE)}


@pytest.mark.parametrize(
    ("situation", "changes", "expected"),
    [
        (host(serving=(ZERO,)), {}, ("ROLLOUT-HOST-UNHEALTHY", "error")),
        (
            host(serving=(ZERO,)),
            {"allow_unhealthy": True},
            ("ROLLOUT-HOST-UNHEALTHY", "warning"),
        ),
        (host(kept=None), {}, ("ROLLOUT-NO-PREVIOUS", "warning")),
        (host(lock=Lock("ann", "today")), {}, ("ROLLOUT-IN-PROGRESS", "error")),
        (host(lock=Lock("ann", "today")), {"take_over": True}, ("ROLLOUT-IN-PROGRESS", "info")),
        (host(), {"canary": ("gpu-009",)}, ("ROLLOUT-UNKNOWN-HOST", "error")),
    ],
)
def test_what_is_found_before_the_change(situation, changes, expected):
    assert codes(plan_rollout("x", [situation], settings(**changes))) == {expected}


def test_a_host_that_does_not_change_may_be_locked_or_broken():
    quiet = host(changed=(), files=False, serving=(), lock=Lock("ann", "today"), kept=None)
    found = plan_rollout("x", [quiet], settings())
    assert found.order == ()
    assert found.unchanged == ("gpu-001",)
    assert not found.findings


@pytest.mark.parametrize(
    ("changes", "order", "batches", "expected"),
    [
        # What the dead run left out of the second host is back before the first one changes.
        ({}, ("b", "a", "c"), (1, 1, 1), []),
        # It may fail and the others go on: nobody counts on what it brings back.
        ({"failure_budget": 1}, ("b", "a", "c"), (1, 1, 1), ["a", "c"]),
        ({"batches": ("100%",)}, ("b", "a", "c"), (1, 1, 1), []),
        ({"canary": ("a",)}, ("a", "b", "c"), (1, 1, 1), ["a"]),
        ({"down_elsewhere": 1, "elsewhere": 2}, ("b", "a", "c"), (1, 1, 1), ["a", "c"]),
    ],
)
def test_a_run_that_died_is_completed_where_one_replica_may_be_out(
    changes, order, batches, expected
):
    begun = host("b", lock=Lock("me", "now", (ZERO,), dead=True))
    hosts = [host("a"), begun, host("c")]
    rollout = plan_rollout("x", hosts, settings(max_unavailable="1", **changes))
    assert (rollout.order, rollout.batches) == (order, batches)
    refused = [one.subject for one in rollout.findings if one.code == "ROLLOUT-MAX-UNAVAILABLE"]
    assert refused == expected


@pytest.mark.parametrize("value", ["", "some", "-1", "101%", "1.5"])
def test_a_setting_that_is_no_share_is_refused(value):
    with pytest.raises(ApiaryError, match="ROLLOUT-SETTING"):
        plan_rollout("x", [host()], settings(max_unavailable=value))


def test_the_defaults_are_shares():
    facts = knowledge("rollout.yml")
    usual = settings(
        batches=tuple(facts["batches"]["value"]),
        max_unavailable=facts["max_unavailable"]["value"],
        failure_budget=facts["failure_budget"]["value"],
    )
    assert plan_rollout("x", [host("a"), host("b")], usual).batches == (1, 1)


def test_the_summary_says_what_is_replaced_in_which_order():
    quiet = host("gpu-002", changed=(), files=False)
    lines = summary(plan_rollout("x", [host(), quiet], settings()))
    assert lines == (
        "x: 1 hosts in 1 batches; at most 1 of 4 replicas out at once; stops after 1 failed hosts",
        "batch 1, the canary",
        f"  gpu-001: replace {ZERO}: its unit or its environment changes",
        f"  gpu-001: replace {ONE}: its unit or its environment changes",
        "  gpu-001: write what no replica runs from, and the record",
        "unchanged: gpu-002",
    )
    assert summary(plan_rollout("x", [quiet], settings())) == ("x: nothing to change on 1 hosts",)


def test_the_summary_of_other_steps():
    moved = host(wanted=slots("c d"), lock=Lock("ann", "today", ()), changed=())
    added = host("b", wanted=slots("a b", "c d", "e"), changed=("apiary-x-2.service",))
    left = host("c", changed=(), lock=Lock("ann", "today", (ONE,)))
    text = "\n".join(summary(plan_rollout("x", [moved, added, left], settings())))
    assert f"drain {ZERO}, {ONE}; then serve from {ZERO}: replicas change GPUs" in text
    assert "b: then serve from apiary-x-2.service: replicas are added" in text
    assert f"c: bring back {ONE}: an interrupted run left it out of the routers" in text


def test_after_a_failed_shrinking_change_all_that_it_drained_comes_back():
    """2 x TP2 to 1 x TP4 failed with the new plan written: replica 1 is drained still."""
    failed = host(running=slots("a b c d"), serving=(), lock=Lock("me", "now", (ZERO, ONE)))
    assert kinds(failed) == [("swap", (ZERO,), (ZERO, ONE))]


def test_what_routers_still_know_comes_back_on_the_way_back():
    """The host was done, so its lock is gone; the routers have not been told yet."""
    done = host(running=slots("a b c d"), serving=(ZERO,), routed=(ZERO, ONE))
    assert kinds(done) == [("swap", (ZERO,), (ZERO, ONE))]
    assert kinds(dataclasses.replace(done, routed=())) == [("swap", (ZERO,), (ZERO,))]


def test_a_replica_with_another_port_waits_for_the_routers():
    first, second = slots("a b", "c d")
    moved = host(wanted=(first, dataclasses.replace(second, port=9001)))
    (alone, swap) = host_steps(moved).steps
    assert (alone.undrain, alone.later) == ((ZERO,), ())
    assert (swap.kind, swap.drain, swap.undrain, swap.later) == ("swap", (ONE,), (), (ONE,))
    assert host_steps(moved).out == 1
    line = summary(plan_rollout("x", [moved], settings()))[-1]
    assert line.endswith(f"; {ONE} back when the routers know the change")


def test_replicas_with_another_key_stay_out_until_the_routers_have_it():
    rotated = host(engine_key=True, lock=Lock("me", "now", (ONE,)), changed=(ZERO,))
    steps = host_steps(rotated).steps
    assert [(step.kind, step.undrain, step.later) for step in steps] == [
        ("return", (), (ONE,)),
        ("replace", (), (ZERO,)),
        ("finish", (), ()),
    ]
    assert host_steps(host(engine_key=True)).out == 2


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "error"),
        ({"allow_outage": True}, "warning"),
        ({"allow_outage": True, "elsewhere": 2}, "error"),  # others would keep the old key
    ],
)
def test_another_key_of_the_engine_is_refused(changes, severity):
    rotated = host(engine_key=True)
    found = codes(plan_rollout("x", [rotated], settings(routers=True, **changes)))
    assert ("ROLLOUT-ENGINE-KEY", severity) in found
    without = codes(plan_rollout("x", [rotated], settings()))
    assert "ROLLOUT-ENGINE-KEY" not in {code for code, _severity in without}


def test_a_key_that_all_replicas_accept_turns_once_the_routers_show_it():
    turned = host(key_first=True)
    rollout = plan_rollout("x", [turned], settings(routers=True))
    assert "ROLLOUT-ENGINE-KEY" not in {code for code, _severity in codes(rollout)}
    assert not any(step.later for one in rollout.hosts for step in one.steps)
    assert must_show_key(rollout, [turned])
    assert not must_show_key(rollout, [host()])
    # Of others nobody has seen that they accept it.
    partly = codes(plan_rollout("x", [turned], settings(routers=True, elsewhere=2)))
    assert ("ROLLOUT-ENGINE-KEY", "error") in partly


@pytest.mark.parametrize("allowed", [False, True])
def test_replicas_over_several_hosts_are_refused(allowed):
    found = plan_rollout("x", [host(nodes=2)], settings(allow_outage=allowed, elsewhere=9))
    assert ("ROLLOUT-NODES", "error") in codes(found)


def test_tls_begins_as_a_port_changes():
    """Routers speak to a server in one way, and learn of the other at the end."""
    with_tls = host(wanted=tuple(dataclasses.replace(slot, tls=True) for slot in TWO))
    (swap,) = host_steps(with_tls).steps
    assert (swap.kind, swap.undrain, swap.later) == ("swap", (), (ZERO, ONE))
    routed = settings(elsewhere=4, routers=True, max_unavailable="2")
    assert not plan_rollout("x", [with_tls], routed).findings
    both = [with_tls, dataclasses.replace(with_tls, host="gpu-002")]
    assert codes(plan_rollout("x", both, routed)) == {("ROLLOUT-NEW-PORTS", "error")}
