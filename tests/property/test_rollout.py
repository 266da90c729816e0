# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the hosts run and are to run: what the order of a rollout always keeps."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.plan import plan_rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.steps import down
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.types import (
    Lock,
    Settings,
    Situation,
    Slot,
)
from hypothesis import given
from hypothesis import strategies as st

UNITS = tuple(f"apiary-x-{index}.service" for index in range(4))


@st.composite
def replicas(draw):
    """A partition of a host's GPUs to at most four replicas."""
    gpus = draw(st.permutations("abcdefgh"))
    sizes = draw(st.lists(st.integers(1, 2), max_size=4))
    base = draw(st.sampled_from([8000, 8000, 9000]))
    found, start = [], 0
    for index, size in enumerate(sizes):
        found.append(Slot(UNITS[index], base + index, tuple(sorted(gpus[start : start + size]))))
        start += size
    return tuple(found)


def some(units):
    return st.lists(st.sampled_from(units), unique=True).map(tuple) if units else st.just(())


@st.composite
def situations(draw):
    count = draw(st.integers(1, 8))
    hosts = []
    for number in range(count):
        running = draw(replicas())
        wanted = draw(st.one_of(st.just(running), st.just(running), replicas()))
        have = [slot.unit for slot in running]
        lock = draw(st.one_of(st.none(), some(have).map(lambda out: Lock("ann", "today", out))))
        # Whoever holds the lock took those out; the others, somebody else.
        others = [unit for unit in have if lock is None or unit not in lock.out]
        hosts.append(
            Situation(
                f"gpu-{number:03}",
                running,
                wanted,
                changed=draw(some([slot.unit for slot in wanted])),
                files=draw(st.booleans()),
                serving=draw(st.one_of(st.just(tuple(have)), some(have))),
                parked=draw(st.one_of(st.just(()), some(others))),
                kept=draw(st.sampled_from([None, "r"])),
                lock=lock,
            )
        )
    return hosts


def wishes():
    shares = st.one_of(
        st.integers(0, 9).map(str), st.integers(0, 100).map(lambda number: f"{number}%")
    )
    return st.builds(
        Settings,
        batches=st.lists(shares, max_size=4).map(tuple),
        max_unavailable=shares,
        failure_budget=st.integers(0, 3),
        elsewhere=st.integers(3, 8),
        down_elsewhere=st.integers(0, 3),
        canary=st.sampled_from([(), ("gpu-000",), ("gpu-001", "gpu-000")]),
        allow_unhealthy=st.just(True),
        take_over=st.just(True),
    )


def may_begin(rollout):
    return not any(
        one.severity == "error" and one.code != "ROLLOUT-UNKNOWN-HOST" for one in rollout.findings
    )


def worst(rollout, hosts):
    """Play the rollout, each batch at its worst: yield how many are out, and the batch's hosts."""
    known = {one.host: one for one in hosts}
    out = {host: set(down(one)) for host, one in known.items()}
    # Of those that bring most back as many fail as may, and are as they were before.
    most_back = sorted(rollout.hosts, key=lambda one: one.back, reverse=True)
    failing = {one.host for one in most_back[: rollout.failure_budget]}
    place = 0
    for size in rollout.batches:
        batch = rollout.hosts[place : place + size]
        place += size
        most = 0
        for one in batch:
            units = {slot.unit for slot in known[one.host].running}
            now, peak = set(out[one.host]), set(out[one.host])
            for step in one.steps:
                now |= set(step.drain) & units
                peak = max(peak, set(now), key=len)
                # With routers a change of ports is refused; without, it is back as it answers.
                now -= {*step.undrain, *step.later}
                now -= set(step.drain) - set(step.ask)
            most += len(peak)
            if one.host not in failing:
                out[one.host] = now
        others = sum(len(out[host]) for host in known if host not in {one.host for one in batch})
        yield most + others


@given(situations(), wishes())
def test_never_more_out_than_allowed(hosts, settings):
    rollout = plan_rollout("x", hosts, settings)
    already = settings.down_elsewhere + sum(len(down(one)) for one in hosts)
    if may_begin(rollout):
        for out in worst(rollout, hosts):
            # What is out already is not made worse; it may be more than may be out.
            assert out + settings.down_elsewhere <= max(rollout.allowed, already)


@given(situations(), wishes())
def test_something_always_answers(hosts, settings):
    rollout = plan_rollout("x", hosts, settings)
    already = settings.down_elsewhere + sum(len(down(one)) for one in hosts)
    if may_begin(rollout) and already < rollout.replicas:
        assert all(
            out + settings.down_elsewhere < rollout.replicas for out in worst(rollout, hosts)
        )


@given(situations(), wishes())
def test_batches_are_all_hosts_that_change_and_no_other(hosts, settings):
    rollout = plan_rollout("x", hosts, settings)
    assert sum(rollout.batches) == len(rollout.order) == len(rollout.hosts)
    assert all(size > 0 for size in rollout.batches)
    assert sorted([*rollout.order, *rollout.unchanged]) == sorted(one.host for one in hosts)
    assert [one.host for one in rollout.hosts] == list(rollout.order)


@given(situations(), wishes())
def test_unchanged_replicas_are_not_touched(hosts, settings):
    known = {one.host: one for one in hosts}
    for one in plan_rollout("x", hosts, settings).hosts:
        situation = known[one.host]
        touched = {unit for step in one.steps for unit in step.drain}
        same = {slot.unit for slot in situation.running if slot in situation.wanted}
        assert not touched & (same - set(situation.changed))


@given(situations(), wishes())
def test_every_step_can_be_taken_when_it_comes(hosts, settings):
    """No GPU has two owners, nothing is drained twice, and in the end the wanted ones are there."""
    known = {one.host: one for one in hosts}
    for one in plan_rollout("x", hosts, settings).hosts:
        situation = known[one.host]
        wanted = {slot.unit: slot for slot in situation.wanted}
        have = {slot.unit: slot for slot in situation.running}
        drained = [unit for step in one.steps for unit in step.drain]
        assert len(drained) == len(set(drained))
        for step in one.steps:
            assert set(step.undrain) <= set(step.ask)
            assert not set(step.undrain) & set(situation.parked)
            for unit in step.drain:
                del have[unit]
            have |= {unit: wanted[unit] for unit in step.ask}
            gpus = [gpu for slot in have.values() for gpu in slot.gpus]
            assert len(gpus) == len(set(gpus))
        assert have == wanted


@given(situations(), wishes())
def test_the_same_again_is_the_same(hosts, settings):
    assert plan_rollout("x", hosts, settings) == plan_rollout("x", hosts, settings)
