# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the adapters read around the pure half: plans of other hosts, routers, dead runs."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from ansible_collections.apiary.instinct.plugins.action import rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils import run_owner
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.read import (
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

from support.waiting import await_true


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


def test_this_run_is_not_dead(tmp_path):
    ours = run_owner.owner()
    assert f"process {os.getppid()}" in ours
    assert not run_owner.is_dead(ours, str(tmp_path))


def test_a_run_of_this_controller_that_ended_is_dead(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    where = run_owner.owner().partition(",")[0]
    assert run_owner.is_dead(f"{where}, process {ended.pid}", str(tmp_path))


@pytest.mark.parametrize("holder", ["bob@elsewhere, process 1", "unknown", ""])
def test_of_other_controllers_nobody_knows(tmp_path, holder):
    assert not run_owner.is_dead(holder, str(tmp_path))


RUN = """
import sys
from ansible_collections.apiary.instinct.plugins.plugin_utils import run_owner
run_owner.os.getppid = run_owner.os.getpid  # as an action's parent
run_owner.socket.gethostname = lambda: "job-12"
run_owner.SHOWN_SECONDS = 0.01
run_owner.show_alive(sys.argv[1])
run_owner.show_alive(sys.argv[1])
print(run_owner.owner(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def job(tmp_path):
    """The container of a job, whose processes nobody else sees: its name, and what ends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    holder = process.stdout.readline().strip()
    assert "@job-12, process" in holder
    yield holder, process
    process.kill()
    process.communicate()


def sign_of(holder, artifacts):
    return run_owner.sign_of(artifacts / "fleet", holder)


def await_sign(sign, condition):
    await_true(lambda: sign.exists() and condition(sign.stat()))


def age(sign, seconds):
    before = time.time() - seconds
    os.utime(sign, (before, before))


def test_a_run_elsewhere_is_alive_as_long_as_it_shows_it(tmp_path, job):
    holder, process = job
    sign = sign_of(holder, tmp_path)
    os.utime(sign, (1, 1))
    await_sign(sign, lambda status: status.st_mtime > 1)
    assert not run_owner.is_dead(holder, str(tmp_path))
    # An error of the file system, for a while, ends no sign.
    sign.unlink()
    await_sign(sign, lambda _status: True)
    process.kill()
    process.communicate()
    await_sign(sign, lambda status: status.st_mtime == 0)
    assert run_owner.is_dead(holder, str(tmp_path))


def test_a_run_whose_container_was_killed_is_dead_after_a_while(tmp_path):
    """With its keeper, which then says nothing."""
    holder = "bob@job-12, process 7"
    sign = sign_of(holder, tmp_path)
    sign.parent.mkdir(parents=True)
    sign.touch()
    assert not run_owner.is_dead(holder, str(tmp_path))
    age(sign, run_owner.DEAD_SECONDS + 60)
    assert run_owner.is_dead(holder, str(tmp_path))


def test_without_a_keeper_nobody_knows_of_a_run(tmp_path, monkeypatch):
    """Where no process may be watched, as under some profiles of containers."""
    monkeypatch.setattr(run_owner, "_KEEPER", "raise OSError(38, 'Function not implemented')")
    run_owner.show_alive(str(tmp_path))
    assert not sign_of(run_owner.owner(), tmp_path).exists()


def test_a_keeper_that_is_gone_gets_a_successor(tmp_path, monkeypatch):
    sign = sign_of(run_owner.owner(), tmp_path)
    sign.parent.mkdir(parents=True)
    sign.touch()
    began = []
    monkeypatch.setattr(run_owner.subprocess, "run", lambda *_a, **_k: began.append(1))
    run_owner.show_alive(str(tmp_path))
    assert began == []
    age(sign, 3 * run_owner.SHOWN_SECONDS)
    run_owner.show_alive(str(tmp_path))
    assert began == [1]


def test_one_of_this_name_that_cannot_be_seen_may_be_in_another_container(tmp_path):
    """Containers on the host's network share its name."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    holder = f"{run_owner.owner().partition(',')[0]}, process {ended.pid}"
    sign = sign_of(holder, tmp_path)
    sign.parent.mkdir(parents=True)
    sign.touch()
    assert not run_owner.is_dead(holder, str(tmp_path))
    os.utime(sign, (0, 0))
    assert run_owner.is_dead(holder, str(tmp_path))


def test_signs_go_when_their_locks_are_forgotten(tmp_path, monkeypatch):
    sign = sign_of("bob@job-12, process 7", tmp_path)
    sign.parent.mkdir(parents=True)
    sign.touch()
    os.utime(sign, (0, 0))
    monkeypatch.setattr(run_owner.subprocess, "run", lambda *_a, **_k: None)
    run_owner.show_alive(str(tmp_path))
    assert sign.exists()
    monkeypatch.setattr(run_owner, "FORGOTTEN_SECONDS", -1)
    run_owner.show_alive(str(tmp_path))
    assert not sign.exists()


def test_jobs_that_share_their_artifacts_are_one_controller(tmp_path, monkeypatch):
    monkeypatch.setattr(run_owner.socket, "gethostname", lambda: "job-12-x")
    first = run_owner.controller(str(tmp_path))
    assert first == f"job-12-x:{tmp_path}"
    monkeypatch.setattr(run_owner.socket, "gethostname", lambda: "job-13-y")
    assert run_owner.controller(str(tmp_path)) == first
    # A copy on another machine, or of a machine that had the same path.
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "fleet", copy / "fleet")
    assert run_owner.controller(str(copy)) == f"job-13-y:{copy}"
    (tmp_path / "fleet").rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "fleet")
    assert run_owner.controller(str(tmp_path)) == f"job-13-y:{tmp_path}"


@pytest.mark.parametrize("text", ["", "job-12\n", "job-12\ninode 1 of /\n"])
def test_a_damaged_name_of_the_controller_is_written_anew(tmp_path, text):
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet/controller").write_text(text)
    assert run_owner.controller(str(tmp_path)) == run_owner.controller(str(tmp_path))


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
