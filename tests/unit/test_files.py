# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import threading

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import (
    findings_here,
    read_text,
    write_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding


def test_a_file_is_replaced_whole_with_its_mode(tmp_path):
    path = tmp_path / "new/plan.json"
    write_text(path, "old")
    write_text(path, "new", 0o600)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["plan.json"]


def test_a_link_is_followed(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join(10)
    assert read == ["through"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", ["file/below", "."])
def test_what_cannot_be_written_is_one_finding_and_leaves_nothing(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ApiaryError) as caught:
        write_text(tmp_path / path, "x")
    assert [finding.code for finding in caught.value.findings] == ["FILE-UNWRITABLE"]
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_read_is_one_finding(tmp_path):
    with pytest.raises(ApiaryError) as caught:
        read_text(str(tmp_path))
    assert [finding.code for finding in caught.value.findings] == ["FILE-UNREADABLE"]


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("run playbooks/site.yml or plan.yml", "run apiary.instinct.site or apiary.instinct.plan"),
        (
            "`ansible-playbook playbooks/drain.yml --limit a`",
            "`ansible-playbook apiary.instinct.drain --limit a`",
        ),
        ("look at rules/alerts.yml", "look at rules/alerts.yml"),
    ],
)
def test_away_from_the_clone_a_remedy_names_the_collections_playbook(
    tmp_path, monkeypatch, told, named
):
    finding = Finding.from_fields(
        code="FILE-UNREADABLE", severity="error", subject="a", message="b", remedy=told, source=None
    )
    monkeypatch.chdir(tmp_path)
    assert findings_here([finding]) == (finding.reworded(remedy=named),)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/site.yml").touch()
    assert findings_here([finding]) == (finding,)
