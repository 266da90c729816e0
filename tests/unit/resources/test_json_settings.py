# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings in somebody's JSON file: merged, judged, and taken out again."""

import json
import stat

import pytest
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module

THEIRS = {"dns": ["10.0.0.1"], "log-opts": {"tag": "x", "max-size": "1m"}}
OURS = {"features": {"cdi": True}, "log-opts": {"max-size": "100m"}}


@pytest.fixture
def run(tmp_path, capsys):
    def run(settings=None, check=False, state="present", validate=()):
        resource = {
            "kind": "json_settings",
            "path": str(tmp_path / "docker/daemon.json"),
            "settings": OURS if settings is None else settings,
            "remember": str(tmp_path / "lib/docker.json"),
            "state": state,
            "validate": list(validate),
        }
        tmpdir = str(tmp_path)
        result = run_module(
            converge, capsys, check, resources=[resource], _ansible_remote_tmp=tmpdir
        )
        (diff,) = result["diff"] or [{"before": "", "after": ""}]
        lines = (diff["before"] + diff["after"]).splitlines()
        return {**result, "diff": diff, "set": sorted({line.split(": ")[0] for line in lines})}

    return run


@pytest.fixture
def daemon(tmp_path):
    path = tmp_path / "docker/daemon.json"
    path.parent.mkdir()
    path.write_text(json.dumps(THEIRS))
    return path


def test_settings_of_others_stay(run, daemon):
    assert run()["set"] == ["features.cdi", "log-opts.max-size"]
    assert json.loads(daemon.read_text()) == {
        "dns": ["10.0.0.1"],
        "log-opts": {"tag": "x", "max-size": "100m"},
        "features": {"cdi": True},
    }


def test_second_run_changes_nothing(run, daemon):
    run()
    before = daemon.read_bytes(), daemon.stat().st_ino
    assert run()["changed"] is False
    assert (daemon.read_bytes(), daemon.stat().st_ino) == before


def test_check_mode_writes_nothing(run, daemon, tmp_path):
    said = run(check=True)
    assert said["changed"] is True
    assert said["set"] == ["features.cdi", "log-opts.max-size"]
    assert json.loads(daemon.read_text()) == THEIRS
    assert not (tmp_path / "lib").exists()


def test_the_diff_shows_ours_only(run, daemon):
    diff = run()["diff"]
    assert diff["before"] == 'log-opts.max-size: "1m"\n'
    assert diff["after"] == 'features.cdi: true\nlog-opts.max-size: "100m"\n'


def test_the_undo_puts_back_what_was(run, daemon, tmp_path):
    run()
    assert run(state="absent")["changed"] is True
    assert json.loads(daemon.read_text()) == THEIRS
    assert not (tmp_path / "lib/docker.json").exists()
    assert run(state="absent")["changed"] is False


def test_the_undo_keeps_what_others_set_in_between(run, daemon):
    run()
    daemon.write_text(json.dumps({**json.loads(daemon.read_text()), "bip": "10.1.0.1/24"}))
    run(state="absent")
    assert json.loads(daemon.read_text()) == {**THEIRS, "bip": "10.1.0.1/24"}


def test_a_setting_that_is_no_longer_wanted_is_put_back(run, daemon):
    run()
    assert run({"features": {"cdi": True}})["set"] == ["log-opts.max-size"]
    assert json.loads(daemon.read_text())["log-opts"] == {"tag": "x", "max-size": "1m"}


def test_a_file_that_was_missing_is_made_and_goes(run, tmp_path):
    path = tmp_path / "docker/daemon.json"
    run()
    assert json.loads(path.read_text()) == OURS
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    run(state="absent")
    assert not path.exists()


def test_the_mode_of_others_stays(run, daemon):
    daemon.chmod(0o600)
    run()
    assert stat.S_IMODE(daemon.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{,}", "[]", "7"])
def test_a_file_that_is_no_object_is_left_alone(run, daemon, text):
    daemon.write_text(text)
    said = run()
    assert said["failed"] is True
    assert said["msg"].startswith(f"error: CONTAINER-DAEMON-JSON: {daemon}: cannot be read")
    assert daemon.read_text() == text


def test_a_judge_that_agrees_sees_the_new_file(run, daemon, tmp_path):
    seen = tmp_path / "seen"
    run(validate=["cp", "%s", str(seen)])
    assert json.loads(seen.read_text()) == json.loads(daemon.read_text())


def test_a_judge_that_refuses_changes_nothing(run, daemon, tmp_path):
    said = run(validate=["ls", "/nowhere", "%s"])
    assert said["failed"] is True
    assert "ls does not accept it" in said["msg"]
    assert json.loads(daemon.read_text()) == THEIRS
    assert not (tmp_path / "lib").exists()
