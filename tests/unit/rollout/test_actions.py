# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the adapters read around the pure half: plans of other hosts, routers, dead runs."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from ansible_collections.apiary.instinct.plugins.action import rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils import run_owner
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.routers import (
    must_learn,
    servers_elsewhere,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.types import (
    HostSteps,
    Lock,
    Rollout,
    Situation,
    Step,
)


def plan(name="x", count=2):
    replicas = [
        {"unit": f"apiary-{name}-{index}.service", "port": 8000 + index, "gpus": []}
        for index in range(count)
    ]
    return json.dumps({"deployment": {"name": name}, "replicas": replicas})


def test_replicas_of_other_hosts_are_read_from_their_plans(tmp_path):
    for path, text in {
        "a/x/plan.json": plan(),
        "b/y/plan.json": plan("y", 4),
        "b/x/plan.json": plan(count=1),
        "c/x/plan.json": "{",
        "d/x/plan.json": "[]",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    hosts = ["a", "b", "c", "d", "e"]
    assert rollout.replicas_elsewhere(str(tmp_path), hosts, "x") == 3


def test_a_router_knows_better_than_plans_which_replicas_there_are():
    servers = {
        "x/gpu-001-0": {"state": "ready", "up": True},
        "x/gpu-002-0": {"state": "ready", "up": True},
        "x/gpu-002-1": {"state": "drain", "up": True},
        "x/gpu-003-0": {"state": "ready", "up": False},
        "y/gpu-002-0": {"state": "ready", "up": False},
    }
    assert servers_elsewhere(servers, "x", {"gpu-001"}) == (3, 2)
    assert servers_elsewhere({}, "x", {"gpu-001"}) is None


def test_this_run_is_not_dead():
    ours = run_owner.owner()
    assert f"process {os.getppid()}" in ours
    assert not run_owner.is_dead(ours)


def test_a_run_of_this_controller_that_ended_is_dead():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    where = run_owner.owner().partition(",")[0]
    assert run_owner.is_dead(f"{where}, process {ended.pid}")


@pytest.mark.parametrize("holder", ["bob@elsewhere, process 1", "unknown", ""])
def test_of_other_controllers_nobody_knows(holder):
    assert not run_owner.is_dead(holder)


def routed(*steps, lock=None):
    situation = Situation("a", (), (), lock=lock)
    order = Rollout("x", ("a",), (1,), (HostSteps("a", steps, 1),), (), 1, 1, 0)
    return must_learn(order, [situation])


def test_routers_learn_of_what_changes_for_them():
    alone = Step("replace", ("u",), ("u",), ("u",), "")
    assert not routed(alone)
    assert routed(dataclasses.replace(alone, undrain=(), later=("u",)))
    assert routed(dataclasses.replace(alone, kind="swap"))
    # Whether an interrupted run had told them, nobody knows.
    assert routed(alone, lock=Lock("ann", "today"))
