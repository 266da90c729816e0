# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters of a host's change: its quarantine, its routers' answers, its events."""

import json
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.apiary.instinct.plugins.action import (
    quarantine,
    rollout,
    router_answers,
)


def run(plugin, check_mode=False, registered=None, hostvars=None, **arguments):
    task = MagicMock(args=arguments, check_mode=check_mode, async_val=0, diff=False)
    action = plugin.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), None)
    own = {"inventory_hostname": "a", "hostvars": hostvars or {}}
    return action.run(task_vars={**own, **(registered or {})})


FAILED = {"msg": "no start", "findings": [{"code": "X-Y", "message": "m"}]}


def test_a_quarantine_is_written_and_ends(tmp_path):
    path = tmp_path / "quarantine.json"
    run(quarantine, check_mode=True, dest=str(tmp_path), task="T", result=FAILED)
    assert not path.exists()
    told = run(quarantine, dest=str(tmp_path), task="T", result=FAILED)
    assert told["message"] == ["no start"]
    written = json.loads(path.read_text())
    assert (written["schema"], written["host"]) == ("apiary.quarantine/v1", "a")
    assert (written["task"], written["findings"]) == ("T", FAILED["findings"])
    run(quarantine, dest=str(tmp_path), state="absent")
    assert not path.exists()
    run(quarantine, dest=str(tmp_path), state="absent")


def test_a_quarantine_has_how_going_back_ended(tmp_path):
    failed = run(rollout, event="failed", task="T", result=FAILED)
    before = {"__progress": failed, "__inspected": {"to": {"release": "r7"}}}
    back = run(rollout, event="returned", registered=before)
    assert back["release"] == "r7"
    run(quarantine, dest=str(tmp_path), progress=back)
    written = json.loads((tmp_path / "quarantine.json").read_text())
    assert [one["code"] for one in written["findings"]] == ["X-Y", "ROLLOUT-ROLLED-BACK"]


def test_a_quarantine_may_fail_the_host_with_its_reason(tmp_path):
    with pytest.raises(AnsibleActionFail, match="no start"):
        run(quarantine, dest=str(tmp_path), task="T", result=FAILED, fail=True)


def test_a_host_is_not_begun_after_others_failed():
    hostvars = {"b": {"__progress": {"outcome": "failed", "changed": False}}, "c": {}}
    told = run(rollout, event="gate", hosts=["b", "c"], hostvars=hostvars)
    assert told["may_begin"] is False
    assert run(rollout, event="lost", hosts=["b", "c"], hostvars=hostvars)["note"] == ""


DONE = {"__drain_router": "r1", "finished": True}
DEAD = {"__drain_router": "r2", "unreachable": True}


def test_a_router_that_is_required_must_be_reached():
    asked = {"answers": [DONE, DEAD], "routers": ["r1", "r2"]}
    with pytest.raises(AnsibleActionFail, match="ROLLOUT-ROUTER-UNREACHABLE"):
        run(router_answers, state="drain", **asked)
    told = run(router_answers, state="drain", required=False, **asked)
    assert (told["answered"], told["lost"], told["results"]) == (["r1"], ["r2"], [DONE])
    again = run(router_answers, state="drain", previous=told, answers=[DONE], routers=["r1"])
    assert again["results"] == [DONE, DONE]


def test_what_is_not_up_fails_unless_it_is_forced():
    left = {**DONE, "finished": False, "findings": [{"subject": "x/a-0"}]}
    with pytest.raises(AnsibleActionFail, match="ROUTER-NOT-UP"):
        run(router_answers, state="up", answers=[left])
    assert run(router_answers, state="up", answers=[left], forced=True)["lost"] == []
    assert run(router_answers, check_mode=True, state="up", answers=[left])["lost"] == []
