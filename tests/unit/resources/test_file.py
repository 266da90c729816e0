# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a host: only what differs is written, and a secret is never shown."""

import os
import stat

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import file, types
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(file, "ORIGINALS", str(tmp_path / "originals"))
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))

    def run(files, check_mode=False, **options):
        resources = [{"kind": "file", **each, **options} for each in files]
        return run_module(converge, capsys, check_mode, resources=resources)

    return run


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_are_written_and_removed_and_a_second_run_changes_nothing(run, tmp_path):
    old, new = tmp_path / "old.conf", tmp_path / "below/new.conf"
    old.write_text("was here\n")
    files = [{"path": str(new), "content": "x = 1\n", "mode": "0640"}, {"path": str(old)}]
    first = run(files=files)
    assert [diff["after_header"] for diff in first["diff"]] == [str(new), str(old)]
    assert new.read_text() == "x = 1\n"
    assert mode(new) == 0o640
    assert not old.exists()
    assert run(files=files)["changed"] is False


def test_check_mode_tells_the_same_and_writes_nothing(run, tmp_path):
    old, new = tmp_path / "old.conf", tmp_path / "new.conf"
    old.write_text("was here\n")
    files = [{"path": str(new), "content": "x = 1\n"}, {"path": str(old)}]
    told = run(files=files, check_mode=True)
    assert not new.exists()
    assert old.exists()
    assert told == run(files=files)


def test_a_wrong_mode_alone_is_mended(run, tmp_path):
    path = tmp_path / "a.conf"
    path.write_text("same\n")
    path.chmod(0o666)
    told = run(files=[{"path": str(path), "content": "same\n"}])
    assert told["changed"]
    assert told["diff"][0]["before"].startswith("# mode 0666")
    assert mode(path) == 0o644


def test_a_password_in_an_address_is_not_shown(run, tmp_path):
    path = tmp_path / "a.sources"
    path.write_text("URIs: https://user:old@mirror.example/\n")
    told = run(files=[{"path": str(path), "content": "URIs: https://user:new@mirror.example/\n"}])
    assert "old" not in str(told["diff"])
    assert "new" not in str(told["diff"])
    assert "https://***@mirror.example/" in told["diff"][0]["after"]
    assert "user:new@" in path.read_text()


def test_the_first_original_is_kept_for_root_alone(run, tmp_path):
    path = tmp_path / "grub"
    path.write_text("theirs\n")
    for content in ("ours\n", "ours again\n"):
        run(files=[{"path": str(path), "content": content}], keep_original=True)
    kept = tmp_path / f"originals{path}"
    assert kept.read_text() == "theirs\n"
    assert mode(kept) == 0o600


def test_a_directory_that_is_none_is_one_finding(run, tmp_path):
    (tmp_path / "file").write_text("")
    told = run(files=[{"path": str(tmp_path / "file/below/x"), "content": "x"}])
    assert told["failed"]
    assert told["msg"].startswith("error: HOST-FILE: ")
