# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dies takes only its own requests along, and each of them ends with a clean error."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from loss.fleet import await_true
from loss.load import under

RATE = 30.0


# How long a router may take to notice: until then it sends requests to what is dead.
NOTICED = 1.0


@dataclass
class Moment:
    """When something died: it takes a moment to kill, so this is a span of the load's time."""

    began: float
    ended: float

    def took(self, one):
        """Say whether a request was under way on what died, or sent there before it was noticed."""
        return one.ended >= self.began and one.started <= self.ended + NOTICED


@contextmanager
def at(running):
    """The moment in which the block breaks something."""
    moment = Moment(running.now(), float("inf"))
    yield moment
    moment.ended = running.now()


def only_those_in_flight_failed(report, moment, replicas, *, cut=False):
    """Only requests of these replicas failed, and each was told so."""
    late = [one for one in report.failed if not moment.took(one)]
    assert not late, f"{len(late)} of {len(report.failed)} were not in flight: {late[:3]}"
    names = {replica.place for replica in replicas} | {replica.name for replica in replicas}
    elsewhere = [one for one in report.failed if one.replica and one.replica not in names]
    assert not elsewhere, elsewhere[:3]
    kinds = {"error", "refused", "cut"} if cut else {"error", "refused"}
    silent = [one for one in report.failed if one.kind not in kinds]
    assert not silent, f"{len(silent)} without an error: {silent[:3]}"


def crash(whole, told, what, replica, command, *, seconds=30.0, cut=False):
    """Break a replica under load; it is left alone, comes back by itself and is used again."""
    before = whole.restarts(replica)
    with under(whole.load(rate=RATE, seconds=120)) as running:
        with at(running) as moment:
            whole.run(replica.host, command)
        await_true(lambda: whole.restarts(replica) > before, seconds, "systemd restarted it")
        whole.await_whole()
    report = told(what, running.report())
    only_those_in_flight_failed(report, moment, [replica], cut=cut)


def test_an_engine_core_that_is_killed(whole, told):
    replica = whole.replicas[0]
    (core,) = whole.processes(replica)["VLLM::EngineCor"]
    crash(whole, told, "kill -9 of an engine core", replica, f"kill -9 {core}")


def test_a_main_process_that_is_killed(whole, told):
    """systemd ends what the supervisor leaves behind, and the engine drains meanwhile."""
    replica = whole.replicas[1]
    (main,) = whole.processes(replica)["main"]
    crash(whole, told, "kill -9 of a supervisor", replica, f"kill -9 {main}")


def test_an_engine_that_hangs(whole, told):
    replica = whole.replicas[2]
    (core,) = whole.processes(replica)["VLLM::EngineCor"]
    crash(whole, told, "an engine core hangs", replica, f"kill -STOP {core}", seconds=60)


@pytest.mark.parametrize("action", ["kill", "pause"])
def test_a_host_that_is_lost_and_comes_back(whole, told, action):
    host = whole.replicas[-1].host
    gone = [replica for replica in whole.replicas if replica.host == host]
    back = {"kill": "start", "pause": "unpause"}[action]

    def out():
        used = [whole.up(router) for router in whole.routers]
        return not any(replica.name in up for replica in gone for up in used)

    with under(whole.load(rate=RATE, seconds=120)) as running:
        with at(running) as moment:
            whole.docker(action, host)
        try:
            await_true(out, 30, f"{host} is out")
        finally:
            whole.docker(back, host)
        whole.await_whole()
    what = {"kill": "a host loses power", "pause": "a host falls silent"}[action]
    # Of a host that is gone nobody is left to end the streams well.
    only_those_in_flight_failed(told(what, running.report()), moment, gone, cut=True)
