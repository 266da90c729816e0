# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a rollout: documents whole at every moment, a lock that tells who has it."""

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import (
    Asked,
    Entry,
    Ledger,
    begin,
    check_same,
    end,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import Options
from click import UsageError

from apiary.app.options import split_extra
from apiary.rollout.command import OWN
from apiary.rollout.prepare import Request, asked_of
from apiary.rollout.store import GONE_SECONDS, Lock, Store, child_sign, controller, save
from support.waiting import await_true

NOW = "2026-11-22T09:00:00Z"


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "ledger" / "h01.json"
    save(path, "one")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ApiaryError) as refusal:
        save(path, "two")
    assert refusal.value.findings[0].code == "FILE-UNWRITABLE"
    assert path.read_text() == "one"


def test_ledgers_and_runs_are_read_back(tmp_path):
    store = Store(tmp_path)
    assert store.ledger("h01") == Ledger("h01")
    ledger = begin(Ledger("h01"), Entry("r", 1, "ann", "ctl", Asked("site"), NOW))
    store.save_ledger(ledger)
    assert store.ledger("h01") == ledger
    with pytest.raises(ApiaryError) as refusal:
        store.load_run("last")
    assert refusal.value.findings[0].code == "FLEET-NO-RUN"


def test_only_the_open_entry_can_be_ended():
    ledger = begin(Ledger("h01"), Entry("r", 1, "ann", "ctl", Asked("site"), NOW))
    other = Entry("s", 1, "bob", "ctl", Asked("site"), NOW, NOW, "done")
    with pytest.raises(ApiaryError) as refusal:
        end(ledger, other)
    assert refusal.value.findings[0].code == "FLEET-LEDGER"


HOLD = """
import sys
from pathlib import Path
from apiary.rollout.store import Lock
with Lock(Path(sys.argv[1])).held("run-1", "now"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_operators_and_the_one_who_is_first(tmp_path):
    path = tmp_path / "fleet" / "lock"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "held\n"
    assert Lock(path).holder()["run"] == "run-1"
    with pytest.raises(ApiaryError) as refusal, Lock(path).held("run-2", NOW):
        pass
    (finding,) = refusal.value.findings
    assert finding.code == "FLEET-LOCKED"
    assert f"process {first.pid}" in finding.message
    # Killed, it holds nothing any more, though its name still stands there.
    first.kill()
    first.communicate()
    assert json.loads(path.read_text())["pid"] == first.pid
    assert Lock(path).holder() == {}
    with Lock(path).held("run-2", NOW):
        assert Lock(path).holder()["run"] == "run-2"
    assert path.read_text() == ""


def locked(path):
    """Return why somebody else is refused the lock."""
    with pytest.raises(ApiaryError) as refusal, Lock(path).held("run-2", NOW):
        pass
    return refusal.value.findings[0].message


def end_of(process):
    process.kill()
    process.wait()


@pytest.fixture
def child():
    """A process that outlives the command which started it."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    end_of(process)


def test_what_a_killed_command_left_running_still_counts(tmp_path, child):
    path = tmp_path / "lock"
    with Lock(path).held("run-1", NOW) as lock:
        lock.child(child.pid)
        left = path.read_text()
    path.write_text(left)
    assert f"process {child.pid}) still runs" in locked(path)
    with Lock(path).held("run-2", NOW, take_over=True):
        pass
    path.write_text(left)
    end_of(child)
    with Lock(path).held("run-2", NOW):
        pass


def test_operators_who_share_the_directory_share_its_lock(tmp_path):
    tmp_path.chmod(0o775)
    with Lock(tmp_path / "lock").held("run-1", NOW):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o664
    (tmp_path / "file").touch()
    with pytest.raises(ApiaryError) as refusal, Lock(tmp_path / "file" / "lock").held("x", NOW):
        pass
    assert refusal.value.findings[0].code == "FILE-UNWRITABLE"


def test_a_run_that_ends_in_an_error_leaves_no_holder(tmp_path):
    """A controller elsewhere that shares the directory could not tell that nobody is at it."""
    path = tmp_path / "lock"
    with pytest.raises(RuntimeError), Lock(path).held("run-1", NOW):
        raise RuntimeError
    assert path.read_text() == ""


def left_elsewhere(path, **more):
    """The lock of a command on another machine that nobody has touched for a while."""
    record = {"holder": "bob", "host": f"not-{controller()}", "pid": 1, "touched": True, **more}
    path.write_text(json.dumps(record))
    before = path.stat().st_mtime - GONE_SECONDS - 60
    os.utime(path, (before, before))
    return record


def test_one_of_another_machine_ends_when_nobody_touches_it(tmp_path):
    """The container of a job is gone with its name, and its process number says nothing here."""
    path = tmp_path / "lock"
    left_elsewhere(path)
    path.touch()
    message = locked(path)
    assert "bob on not-" in message
    assert "its lock ends in 10 min" in message
    left_elsewhere(path)
    with Lock(path).held("run-2", NOW) as lock:
        assert lock.holder()["run"] == "run-2"


def test_one_that_was_never_touched_does_not_end_by_itself(tmp_path):
    """An earlier release's command says nothing while it is at work."""
    left_elsewhere(tmp_path / "lock", touched=False)
    assert locked(tmp_path / "lock").endswith("whether it still runs cannot be seen from here")
    with Lock(tmp_path / "lock").held("run-2", NOW, take_over=True):
        pass


def test_a_playbook_elsewhere_that_outlives_its_command_keeps_the_lock(tmp_path, child):
    path = tmp_path / "lock"
    with Lock(path).held("run-1", NOW) as lock:
        lock.child(child.pid)
        ours = lock.record
    (kept,) = (tmp_path / "alive").iterdir()
    # The same on another machine, whose processes cannot be seen.
    record = left_elsewhere(path, child=child.pid, child_begun=ours["child_begun"])
    assert locked(path).endswith("whether it still runs cannot be seen from here")
    sign = child_sign(path, record)
    sign.touch()
    assert "its lock ends in 10 min" in locked(path)
    end_of(child)
    await_true(lambda: kept.stat().st_mtime == 0)
    os.utime(sign, (0, 0))
    with Lock(path).held("run-2", NOW):
        pass


def test_who_is_at_work_touches_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("apiary.rollout.store.TOUCH_SECONDS", 0.01)
    path = tmp_path / "lock"
    with Lock(path).held("run-1", NOW):
        os.utime(path, (1, 1))
        await_true(lambda: path.stat().st_mtime != 1)


def asked(tmp_path, files=(), inline=None, tags=None):
    options = Options(inventory=(str(tmp_path / "hosts.yml"),), extra_files=tuple(files))
    request = Request("site", options, inline or {}, tags, None, False, None)
    return asked_of("site", tmp_path / "play.yml", request)


def test_a_run_is_another_one_when_what_was_asked_is(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {}")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "play.yml").write_text("[]")
    variables = tmp_path / "v.yml"
    variables.write_text("a: 1")
    files, inline = split_extra([f"@{variables}", "b=2 c=3", '{"d": [4]}'])
    assert (files, inline) == ([f"@{variables}"], {"b": "2", "c": "3", "d": [4]})
    before = asked(tmp_path, files=files, inline=inline)
    check_same(before, asked(tmp_path, files=files, inline=inline), "run-1")

    def what(now):
        with pytest.raises(ApiaryError) as refusal:
            check_same(before, now, "run-1")
        (finding,) = refusal.value.findings
        assert finding.code == "FLEET-RESUME-CHANGED"
        return finding.message

    assert "-e" in what(asked(tmp_path, files=files))
    assert "--tags" in what(asked(tmp_path, files=files, inline=inline, tags="rocm"))
    hidden = tmp_path / "group_vars" / ".git"
    hidden.mkdir()
    (hidden / "index").write_text("1")
    assert asked(tmp_path, files=files, inline=inline) == before
    (tmp_path / "group_vars" / "all.yml").write_text("x: 1")
    assert "inventory" in what(asked(tmp_path, files=files, inline=inline))


@pytest.mark.parametrize("given", ["nonsense", "@/no/such", "target=h01", "[1]"])
def test_variables_that_are_none_or_that_an_option_is_for(given):
    with pytest.raises(UsageError):
        split_extra([given], OWN)


def test_a_refused_value_is_not_repeated():
    with pytest.raises(UsageError) as refusal:
        split_extra(["{token: [hunter2"])
    assert "hunter2" not in str(refusal.value)
