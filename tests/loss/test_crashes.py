# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dies takes only its own requests along, and each of them ends with an error that tells so.

Where a whole process is killed that was writing a stream, that error is the missing last chunk.
"""

import pytest

from loss.fleet import CORE, WORKER, await_true
from loss.load import under
from loss.moment import NOTICED, at, unexplained


def only_those_in_flight_failed(report, moment, names, *, cut=False, noticed=NOTICED):
    """Only requests of these replicas or routers failed, and each was told so."""
    assert not unexplained(report, moment, names, cut=cut, noticed=noticed)


def crash(
    whole,
    add_row,
    signal,
    what,
    replica,
    process,
    *,
    seconds=30.0,
    cut=False,
    noticed=NOTICED,
    warm=1.0,
):
    """Break a replica under load; it is left alone, comes back by itself and is used again.

    It is stopped first, so that what comes then stays with it until it is killed.
    """
    before = whole.restarts(replica)
    with under(whole.load(seconds=240, timeout_seconds=60), warm) as running:
        with at(running) as moment:
            whole.run(replica.host, f"kill -STOP {process}")
            await_true(lambda: whole.busy(replica), 30, "a request is in flight there")
            whole.run(replica.host, f"kill -{signal} {process}")
        await_true(lambda: whole.restarts(replica) > before, seconds, "systemd restarted it")
        back = whole.await_whole()
    report = add_row(f"SIG{signal} of {what} (back after {back:.0f} s)", running.report())
    only_those_in_flight_failed(report, moment, {replica.name}, cut=cut, noticed=noticed)
    return report


def test_an_engine_core_that_is_killed(whole, add_row):
    replica = whole.replicas[0]
    (core,) = whole.processes(replica)[CORE]
    assert crash(whole, add_row, "KILL", "an engine core", replica, core).failed


# Its engine core notices, and what comes then is the test above.
@pytest.mark.night
def test_a_worker_that_is_killed(whole, add_row):
    replica = whole.replicas[1]
    worker = whole.processes(replica)[WORKER][-1]
    crash(whole, add_row, "KILL", "a worker", replica, worker)


def test_a_supervisor_that_is_killed(whole, add_row):
    """systemd kills the engine after it, so that nobody is left to end the streams well."""
    replica = whole.replicas[3]
    (main,) = whole.processes(replica)["main"]
    crash(whole, add_row, "KILL", "a supervisor", replica, main, cut=True)


def test_an_engine_that_hangs(whole, add_row):
    """It is restarted after limits.hang_timeout_seconds; what it got meanwhile fails with it."""
    replica = whole.replicas[2]
    limits = whole.plans[replica.host]["deployment"]["limits"]
    noticed = limits["hang_timeout_seconds"] + 10
    (core,) = whole.processes(replica)[CORE]
    timing = {"seconds": noticed + 10, "noticed": noticed}
    crash(whole, add_row, "STOP", "an engine core", replica, core, **timing)


def test_a_host_that_loses_power_and_boots(whole, add_row):
    host, gone = last_host(whole)
    with under(whole.load(seconds=120)) as running:
        with at(running) as moment:
            whole.docker("kill", host)
        whole.await_out(gone)
        whole.docker("start", host)
        whole.await_whole()
    report = add_row("a host loses power and boots", running.report())
    # Of a host that is gone nobody is left to end the streams well.
    only_those_in_flight_failed(report, moment, gone, cut=True)


def test_a_host_that_vanishes_from_the_network(whole, add_row):
    """No packet says that it is gone: what was in flight ends when TCP gives up, in 30 s."""
    host, gone = last_host(whole)
    with under(whole.load(seconds=120, timeout_seconds=60)) as running:
        with at(running) as moment:
            join = whole.cut(host)
        whole.await_out(gone)
        caught = [one.number for one in running.report().outcomes]
        running.go_on(34)  # TCP gives up
        join()
        whole.await_whole()
    report = add_row("a host vanishes and comes back", running.report())
    assert len(report.outcomes) > len(caught)
    only_those_in_flight_failed(report, moment, gone, cut=True, noticed=5)


def test_the_router_that_has_the_address_loses_power(whole, add_row):
    """Clients of the virtual address lose what was in flight there, and go on at the other one."""
    holder = whole.await_holder()
    with under(whole.load_of_address()) as running:
        with at(running) as moment:
            whole.docker("kill", holder)
        try:
            moved = whole.await_moved(holder)
            before = len(running.report().of("ok"))
            await_true(lambda: len(running.report().of("ok")) > before + 30, 120, "it serves")
        finally:
            whole.docker("start", holder)
        whole.await_whole()
    report = add_row(f"the router with the address dies, moved in {moved:.0f} s", running.report())
    late = [one for one in report.failed if not moment.took(one, 0)]
    assert not late, late[:3]


def last_host(whole):
    """The last host, and its replicas by name."""
    host = whole.replicas[-1].host
    return host, {replica.name for replica in whole.replicas if replica.host == host}
