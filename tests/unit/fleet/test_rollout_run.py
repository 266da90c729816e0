# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run over twelve hosts whose playbooks a double plays: what is begun, and what is told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Asked
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    HostRun,
    Options,
    RunWave,
    Skipped,
    with_hosts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine

from apiary.app.runner import PLAYBOOKS, Ended
from apiary.app.runner_events import Failed
from apiary.rollout.plays import Plays
from apiary.rollout.progress import clock, phases_text, seconds_left
from apiary.rollout.records import Records, host_outcomes
from apiary.rollout.run import Conductor, Signals
from apiary.rollout.store import Store

MONDAY_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
NOBODY = Finding.from_fields(
    code="ROCM-BROKEN",
    severity="error",
    subject="h01",
    message="no driver",
    remedy="mend it",
    source=None,
)


class World:
    """The clock and the hosts: what a playbook does to each is in ``will``, tried in turn."""

    def __init__(self):
        self.now = MONDAY_NOON
        self.will = {}
        self.played = []
        self.during = lambda name, hosts: None
        self.stats = {}

    def sleep(self, seconds):
        self.now += timedelta(seconds=seconds)

    def play(self, path, *, limit, artifacts, on_event, **_more):
        name = artifacts.name.partition("-")[2]
        hosts = [one for one in limit if one.startswith("h")]
        self.played.append((name, tuple(hosts)))
        artifacts.mkdir(parents=True, exist_ok=True)
        on_event({"event": "playbook_on_start", "pid": 4711})
        self.now += timedelta(minutes=5)
        self.during(name, hosts)
        counts, failed = {}, {}
        for host in hosts:
            queue = self.will.get((name, host)) or [None]
            what = queue.pop(0) if len(queue) > 1 else queue[0]
            counts[host] = {"ok": 3, "processed": 1}
            if what is not None:
                counts[host]["dark" if what.kind == "unreachable" else "failures"] = 1
                failed[host] = what
        custom = {"apiary_outcomes": self.stats} if self.stats and name == "replicas" else {}
        return Ended(
            2 if failed else 0, "failed" if failed else "successful", counts, failed, custom
        )


class Quiet:
    """Nobody looks."""

    def __init__(self):
        self.notes = []

    def wave(self, run, number, hosts):
        pass

    def event(self, event):
        pass

    def ended(self, run, number):
        pass

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def store(tmp_path, monkeypatch):
    # Whether it is on the disk is asked in test_rollout_store; here it only takes time.
    monkeypatch.setattr("os.fsync", lambda _handle: None)
    return Store(tmp_path / "artifacts")


def names(first, last):
    return tuple(f"h{number:02d}" for number in range(first, last + 1))


def conduct(world, store, *, canary=True, playbook="site", domains=None, **options):
    """Run twelve hosts: a canary, then five, then six; return the run and who watched."""
    waves = (
        RunWave(names(1, 1), canary, "the canary"),
        RunWave(names(2, 6), False, "a batch of 5"),
        RunWave(names(7, 12), False, "a batch of 6"),
    )
    run = FleetRollout(
        id="run-1",
        state="running",
        asked=Asked(playbook),
        options=Options(**options),
        operator="ann",
        controller="ctl",
        pid=1,
        begun_at="2026-11-23T12:00:00Z",
        waves=waves,
        hosts=tuple(
            HostRun(host, number) for number, wave in enumerate(waves, 1) for host in wave.hosts
        ),
    )
    return again(world, store, run, playbook, domains=domains)


def again(world, store, run, playbook="site", signals=None, domains=None):
    quiet = Quiet()
    name = {"site": "site", "replicas": "rollout"}[playbook]
    signals = signals or Signals()
    plays = Plays(
        records=Records(run, store, name, lambda: world.now),
        play=world.play,
        path=PLAYBOOKS / f"{name}.yml",
        own=True,
        inline={},
        outside=(),
        stop=signals.now,
        on_event=quiet.event,
    )
    conductor = Conductor(
        records=plays.records,
        plays=plays,
        shown=quiet,
        signals=signals,
        now=lambda: world.now,
        sleep=world.sleep,
        domains=domains or {},
    )
    return conductor.go(), quiet


def outcomes(run):
    return {one.host: one.outcome for one in run.hosts}


def names_of(world):
    return [name for name, _hosts in world.played]


def last(store, host):
    return store.ledger(host).entries[-1]


def test_all_is_well(world, store):
    run, _quiet = conduct(world, store)
    assert run.state == "done"
    assert set(outcomes(run).values()) == {"done"}
    assert names_of(world) == ["validate", *["hold", "site", "release"] * 3]
    assert last(store, "h12").outcome == "done"
    assert last(store, "h12").operator == "ann"
    assert store.load_run("last") == run
    # Anybody could have done it by hand.
    assert run.waves[1].commands[1].startswith("ansible-playbook --limit @")


def test_a_canary_that_fails_stops_all_and_says_why(world, store):
    world.will["site", "h01"] = [Failed("Install", str(NOBODY), (NOBODY,))]
    run, _quiet = conduct(world, store, failure_budget=5)
    assert run.state == "failed"
    assert outcomes(run) == {"h01": "failed"} | dict.fromkeys(names(2, 12), "waiting")
    assert "FLEET-CANARY-FAILED: h01: the canary failed: ROCM-BROKEN" in run.stopped
    assert not store.ledger("h02").entries
    assert last(store, "h01").findings == (NOBODY,)


def test_a_domain_that_lost_a_host_loses_no_other_within_the_budget(world, store):
    racks = {host: f"rack{int(host[1:]) % 5}" for host in names(1, 12)}
    world.will["site", "h03"] = [Failed("Install", str(NOBODY), (NOBODY,))]
    run, _quiet = conduct(world, store, failure_budget=1, domains=racks)
    assert run.state == "failed"
    # h08 stands in the rack of h03; all others were changed.
    assert {host for host, one in outcomes(run).items() if one != "done"} == {"h03", "h08"}
    assert outcomes(run)["h08"] == "waiting"
    (held,) = [one for one in run.findings if one.code == "FLEET-DOMAIN-DOWN"]
    assert (held.subject, "h03" in held.message) == ("h08", True)
    # Mended, h03 goes first, and h08 with the wave that it was left out of.
    world.will.clear()
    changed = with_hosts(run, {"h03": replace(run.host("h03"), outcome="waiting")})
    rest, _quiet = again(world, store, replace(changed, state="running"), domains=racks)
    assert rest.state == "done"


@pytest.mark.parametrize("reason", ["in quarantine: no driver", "is not in the inventory any more"])
def test_a_resumed_run_does_not_pass_a_canary_that_is_put_aside_or_gone(world, store, reason):
    world.will["site", "h01"] = [Failed("Install", str(NOBODY), (NOBODY,))]
    run, _quiet = conduct(world, store)
    world.played.clear()
    rest = replace(run, state="running", skipped=(Skipped("h01", reason),), findings=())
    rest, _quiet = again(world, store, rest)
    assert rest.state == "failed"
    assert [one.code for one in rest.findings] == ["FLEET-CANARY-MISSING"]
    assert not [name for name in names_of(world) if name != "validate"]
    # Mended and given back, it is the canary again, and the others follow.
    world.will.clear()
    rest = replace(rest, hosts=(HostRun("h01", 1), *rest.hosts[1:]), skipped=(), findings=())
    rest, _quiet = again(world, store, rest)
    assert rest.state == "done"


def test_a_canary_that_was_rolled_back_is_told_in_the_words_of_its_failure(world, store):
    world.stats = {"h01": "rolled back"}
    aside = store.artifacts / "h01" / "quarantine.json"
    aside.parent.mkdir(parents=True)
    back = {
        "code": "ROLLOUT-ROLLED-BACK",
        "severity": "error",
        "subject": "h01",
        "message": "the change failed; the host serves release r1 again",
        "remedy": "mend it",
        "source": None,
    }

    def put_aside(name, _hosts):
        if name == "replicas":
            answer = {**back, "code": "REPLICA-ANSWER", "message": "says nothing"}
            findings = tuple(Finding.from_fields(**each) for each in (answer, back))
            aside.write_text(dumps(Quarantine("h01", "Step | Ask it", "says nothing", findings)))

    world.during = put_aside
    world.will["replicas", "h01"] = [Failed("End", "error: ROLLOUT-FAILED: h01: says nothing")]
    run, _quiet = conduct(world, store, playbook="replicas")
    assert outcomes(run)["h01"] == "rolled back"
    assert outcomes(run)["h02"] == "waiting"
    assert run.host("h01").task == "Step | Ask it"
    assert "was rolled back: REPLICA-ANSWER: says nothing; " in run.stopped
    assert "serves release r1 again" in run.stopped
    assert last(store, "h01").outcome == "rolled back"


@pytest.mark.parametrize(("own", "outcome"), [(True, "quarantined"), (False, "failed")])
def test_an_old_quarantine_is_not_why_anothers_playbook_failed(store, own, outcome):
    aside = store.artifacts / "h01" / "quarantine.json"
    aside.parent.mkdir(parents=True)
    aside.write_text(dumps(Quarantine("h01", "Old", "long ago")))
    ended = Ended(2, "failed", {"h01": {"failures": 1}}, {"h01": Failed("New", "today")})
    before = {"h01": store.quarantine("h01")}
    came = host_outcomes(["h01"], ended, store, before, must_tell=False, own=own)["h01"]
    assert (came.outcome, came.task) == (outcome, "Old" if own else "New")


def test_silence_of_the_rollout_playbook_is_no_success(world, store):
    """Where any_errors_fatal ends its first play, hosts that did not fail were not changed."""
    world.stats = {"h01": "done"}
    run, _quiet = conduct(world, store, playbook="replicas")
    assert outcomes(run)["h01"] == "done"
    assert outcomes(run)["h02"] == "waiting"
    assert run.state == "stopped"


def test_the_budget_counts_over_waves(world, store):
    for host in ("h02", "h07"):
        world.will["site", host] = [Failed("Install", "no room", ())]
    run, _quiet = conduct(world, store, failure_budget=1)
    assert [one for one in run.findings if one.code == "FLEET-BUDGET"]
    assert outcomes(run) == dict.fromkeys(names(1, 12), "done") | {"h02": "failed", "h07": "failed"}
    assert run.state == "failed"


def test_an_unreachable_host_is_tried_again_and_then_does_well(world, store):
    gone = Failed("Hold", "no route", (), "unreachable")
    world.will["hold", "h03"] = [gone, None]
    run, quiet = conduct(world, store)
    assert run.state == "done"
    assert run.host("h03").attempts == 2
    assert [entry.outcome for entry in store.ledger("h03").entries] == ["unreachable", "done"]
    assert quiet.notes == ["h03: it could not be reached; again in 20 s"]
    # The others of the wave are not asked again.
    assert ("hold", ("h03",)) in world.played


def test_who_cannot_be_held_is_not_changed_and_stops_the_others_beyond_the_budget(world, store):
    taken = Finding.from_fields(
        code="ROLLOUT-IN-PROGRESS",
        severity="error",
        subject="",
        message="bob changes it",
        remedy="wait",
        source=None,
    )
    world.will["hold", "h03"] = [Failed("Hold", str(taken), (taken,))]
    run, _quiet = conduct(world, store)
    assert outcomes(run)["h03"] == "failed"
    assert outcomes(run)["h02"] == "waiting"
    assert ("site", names(2, 6)) not in world.played
    assert "bob changes it" in run.stopped
    # They were written down as begun, and then as not touched.
    assert last(store, "h02").outcome == "waiting"


def test_within_the_budget_the_others_go_on(world, store):
    world.will["hold", "h03"] = [Failed("Hold", "sudo: no", ())]
    run, _quiet = conduct(world, store, failure_budget=1)
    assert outcomes(run) == dict.fromkeys(names(1, 12), "done") | {"h03": "failed"}


def test_no_retries_when_the_operator_says_so(world, store):
    world.will["hold", "h03"] = [Failed("Hold", "no route", (), "unreachable")]
    run, _quiet = conduct(world, store, retries=0)
    assert run.host("h03").attempts == 1
    assert outcomes(run)["h03"] == "unreachable"


def test_a_router_that_fails_ends_the_run(world, store):
    def router(name, _hosts):
        if name == "site":
            world.failed = True

    world.during = router
    play = world.play

    def with_router(path, **more):
        ended = play(path, **more)
        if more["artifacts"].name.endswith("site"):
            ended = Ended(2, "failed", ended.counts, {"router-1": Failed("Reload", "bad cfg")})
        return ended

    world.play = with_router
    run, _quiet = conduct(world, store)
    assert "FLEET-OTHER-FAILED: router-1" in run.stopped
    assert outcomes(run)["h01"] == "done"
    assert outcomes(run)["h02"] == "waiting"


def test_a_playbook_that_does_not_begin_ends_the_run(world, store):
    def broken(path, **more):
        if more["artifacts"].name.endswith("site"):
            return Ended(4, "failed", {}, {}, output="ERROR! no such role")
        return World.play(world, path, **more)

    world.play = broken
    run, _quiet = conduct(world, store)
    assert "FLEET-RUN-FAILED" in run.stopped
    assert "no such role" in run.stopped
    assert set(outcomes(run).values()) == {"waiting"}


def test_a_mistake_in_the_inventory_is_told_before_anything_is_touched(world, store):
    wrong = Finding.from_fields(
        code="INVENTORY-UNKNOWN",
        severity="error",
        subject="h02",
        message="apiary_rak is no variable",
        remedy="apiary_rack?",
        source=None,
    )
    world.will["validate", "h01"] = [Failed("Validate", str(wrong), (wrong,))]
    run, _quiet = conduct(world, store)
    assert names_of(world) == ["validate"]
    assert run.state == "stopped"
    assert run.findings == (wrong,)


class Killed(BaseException):
    """The power goes."""


@pytest.mark.parametrize("when", ["hold", "site", "release"])
def test_killed_at_any_time_the_ledger_is_true_and_a_resumed_run_finishes(world, store, when):
    def kill(name, hosts):
        if name == when and "h02" in hosts:
            raise Killed

    world.during = kill
    with pytest.raises(Killed):
        conduct(world, store)
    left = store.load_run("last")
    assert left.state == "running"
    # Before the end of the wave, hosts are begun; after it, done.
    expected = "done" if when == "release" else "begun"
    assert {last(store, host).outcome for host in names(2, 6)} == {expected}
    assert not store.ledger("h07").entries
    world.during = lambda name, hosts: None
    world.played.clear()
    rest = replace(
        left,
        hosts=tuple(
            one if one.outcome == "done" else replace(one, outcome="waiting") for one in left.hosts
        ),
    )
    run, _quiet = again(world, store, rest)
    assert run.state == "done"
    # What was done stays done, what was begun is done again.
    changed = {host for name, hosts in world.played if name == "site" for host in hosts}
    assert changed == set(names(7, 12) if when == "release" else names(2, 12))
    if when != "release":
        assert [one.outcome for one in store.ledger("h02").entries] == ["interrupted", "done"]


def test_two_signals_end_it_at_once_and_nobody_is_blamed(world, store):
    signals = Signals()

    def cancelled(path, *, stop, **more):
        if not more["artifacts"].name.endswith("site"):
            return World.play(world, path, stop=stop, **more)
        signals.asked = 2
        assert stop()
        return Ended(254, "canceled", {}, {}, touched=frozenset(["h01"]))

    world.play = cancelled
    hosts = (HostRun("h01", 1), HostRun("h02", 1))
    run = FleetRollout(
        "run-1", "running", Asked("site"), Options(), "ann", "ctl", 1, "x",
        waves=(RunWave(("h01", "h02"), True, ""),), hosts=hosts,
    )  # fmt: skip
    run, _quiet = again(world, store, run, signals=signals)
    assert run.state == "interrupted"
    assert run.findings == ()
    assert outcomes(run) == {"h01": "interrupted", "h02": "waiting"}
    assert names_of(world)[-1] == "release"


def test_a_signal_ends_it_after_the_wave(world, store):
    signals = Signals()

    def press(name, _hosts):
        if name == "site":
            signals.asked = 1

    world.during = press
    waves = (RunWave(names(1, 1), False, ""), RunWave(names(2, 3), False, ""))
    run = FleetRollout(
        "run-1", "running", Asked("site"), Options(), "ann", "ctl", 1, "x", waves=waves,
        hosts=(HostRun("h01", 1), HostRun("h02", 2), HostRun("h03", 2)),
    )  # fmt: skip
    run, _quiet = again(world, store, run, signals=signals)
    assert run.state == "interrupted"
    assert outcomes(run) == {"h01": "done", "h02": "waiting", "h03": "waiting"}


def test_a_check_writes_no_ledger_and_holds_nobody(world, store):
    waves = (RunWave(names(1, 2), False, ""),)
    run = FleetRollout(
        "run-1", "running", Asked("site", check=True), Options(), "ann", "ctl", 1, "x",
        waves=waves, hosts=(HostRun("h01", 1), HostRun("h02", 1)),
    )  # fmt: skip
    run, _quiet = again(world, store, run)
    assert run.state == "done"
    assert names_of(world) == ["validate", "site"]
    assert not store.ledger("h01").entries


def test_failures_stand_first_and_the_rest_takes_as_long_as_the_longest_did(world, store):
    assert phases_text(["done", "waiting", "failed", "waiting"]) == "1 failed, 1 done, 2 waiting"
    assert phases_text([]) == "no hosts"
    run, _quiet = conduct(world, store)
    assert seconds_left(run) == 0.0
    fresh = [replace(wave, ended_at=None) for wave in run.waves]
    took = [replace(fresh[0], ended_at=run.begun_at, seconds=90.0), *fresh[1:]]
    assert seconds_left(replace(run, waves=tuple(fresh))) is None
    assert seconds_left(replace(run, waves=tuple(took))) == 180.0
    assert seconds_left(replace(run, waves=tuple(took)), running_for=30.0) == 150.0
    assert seconds_left(replace(run, waves=tuple(took)), running_for=300.0) == 90.0
    times = [clock(seconds) for seconds in (None, 0.2, 59, 61, 4800)]
    assert times == ["", "1 s", "59 s", "1 min", "1 h 20 min"]
