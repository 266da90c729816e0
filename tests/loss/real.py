# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same with real vLLM behind a real router: run by `make e2e`, on the lab that it has up."""

import os

import pytest

from loss.fleet import CORE, Fleet
from loss.load import under
from loss.test_crashes import crash
from loss.test_planned import nothing_failed, roll


@pytest.fixture(scope="session")
def fleet():
    # The CPU build on one core: a token takes some 50 ms, a start two minutes. An answer must take
    # longer than the pause between requests, so that some are in flight at any moment.
    found = Fleet(os.environ["APIARY_LAB"], rate=1.0, tokens=32)
    found.await_whole(120)
    return found


def test_routers_that_reload_again_and_again(whole, add_row):
    with under(whole.load()) as running:
        for _ in range(6):
            for router in whole.routers:
                whole.run(router, "systemctl reload haproxy")
            running.go_on(2)
    # A request a second, for some fifteen.
    nothing_failed(add_row("six reloads of the router", running.report()), least=10)


def test_a_rolling_update_of_every_replica(whole, add_row):
    roll(whole, add_row, "e2e_batched_tokens=2048", "--max-num-batched-tokens 2048")


def test_an_engine_core_that_is_killed(whole, add_row):
    replica = whole.replicas[0]
    (core,) = whole.processes(replica)[CORE]
    report = crash(whole, add_row, "KILL", "an engine core", replica, core, seconds=180, warm=5)
    assert report.failed
