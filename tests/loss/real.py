# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same with real vLLM behind a real router: run by `make e2e`, on the lab that it has up."""

import os

import pytest

from loss.fleet import Fleet
from loss.test_crashes import CORE, crash
from loss.test_planned import roll


@pytest.fixture(scope="session")
def fleet():
    # The CPU build on one core: a token takes some 20 ms, a start a minute.
    found = Fleet(os.environ["APIARY_LAB"], rate=2.0, tokens=16)
    found.await_whole(120)
    return found


def test_a_rolling_update_of_every_replica(whole, told):
    roll(whole, told, "e2e_batched_tokens=2048", "--max-num-batched-tokens 2048")


def test_an_engine_core_that_is_killed(whole, told):
    replica = whole.replicas[0]
    (core,) = whole.processes(replica)[CORE]
    crash(whole, told, "kill -9 of an engine core", replica, f"kill -9 {core}", seconds=180)
