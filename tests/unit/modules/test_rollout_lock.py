# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import releases as store
from ansible_collections.apiary.instinct.plugins.modules import rollout_lock

from support.modules import run_module

UNIT = "apiary-x-0.service"


@pytest.fixture
def lock(tmp_path, capsys):
    def lock(owner="ann", check_mode=False, **more):
        told = {"deployment": "x", "owner": owner, "directory": str(tmp_path), **more}
        return run_module(rollout_lock, capsys, check_mode, **told)

    return lock


def test_a_lock_names_its_owner_and_what_is_out(lock, tmp_path):
    done = lock(out=[UNIT])
    assert done["changed"]
    held = json.loads((tmp_path / "x.lock").read_text())
    assert (held["owner"], held["out"]) == ("ann", [UNIT])
    assert held["schema"] == "apiary.rollout-lock/v1"


def test_a_lock_remembers_that_nothing_was_up(lock):
    assert lock(stopped=True)["lock"]["stopped"] is True
    assert not lock(stopped=True)["changed"]
    assert "stopped" not in lock()["lock"]


def test_the_owner_goes_on_from_the_same_time(lock, tmp_path):
    since = lock()["lock"]["since"]
    (tmp_path / "x.lock").write_text(
        json.dumps({"schema": store.LOCK_SCHEMA, "owner": "ann", "since": "then", "out": []})
    )
    assert not lock()["changed"]
    assert lock(out=[UNIT])["lock"]["since"] == "then" != since


def test_another_run_is_refused_and_told_who_it_is(lock):
    lock()
    for refused in (lock("bob"), lock("bob", state="absent"), lock("bob", check_mode=True)):
        assert "ROLLOUT-IN-PROGRESS: x: ann" in refused["msg"]
        assert refused["lock"]["owner"] == "ann"


def test_a_lock_is_taken_over_when_told_so(lock):
    lock()
    assert lock("bob", take_over=True)["lock"]["owner"] == "bob"
    assert "bob" in lock()["msg"]


def test_a_lock_is_given_back_once(lock, tmp_path):
    lock()
    assert lock(state="absent")["changed"]
    assert not (tmp_path / "x.lock").exists()
    assert not lock(state="absent")["changed"]


def test_check_mode_touches_nothing(lock, tmp_path):
    assert lock(check_mode=True)["changed"]
    assert list(tmp_path.iterdir()) == []
    lock()
    assert lock(check_mode=True, state="absent")["changed"]
    assert (tmp_path / "x.lock").exists()


def test_who_is_slower_is_refused(lock, monkeypatch):
    """Both saw no lock; only one of them may write it."""
    lock("bob")
    real = store.read_lock
    answers = iter([None])
    monkeypatch.setattr(store, "read_lock", lambda path: next(answers, real(path)))
    assert "ROLLOUT-IN-PROGRESS: x: bob" in lock("ann")["msg"]


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_torn_lock_is_of_a_run_that_is_gone(lock, tmp_path, text):
    """Its writer syncs before it gives it its name, so that only an earlier version leaves one."""
    (tmp_path / "x.lock").write_text(text)
    held = store.read_lock(str(tmp_path / "x.lock"))
    assert (held["owner"], held["torn"]) == ("unknown", True)
    assert lock()["lock"]["owner"] == "ann"


def test_a_lock_that_cannot_be_read_is_held(lock, tmp_path):
    (tmp_path / "x.lock").mkdir()
    assert "torn" not in store.read_lock(str(tmp_path / "x.lock"))
    assert "ROLLOUT-IN-PROGRESS: x: unknown" in lock()["msg"]
