# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is saved of a host and cannot be read: a finding, and the host stays out."""

from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    load_quarantine,
    saved_system,
)


def test_a_directory_of_somebody_else_keeps_its_host_out(tmp_path, monkeypatch):
    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    problems = []
    assert load_quarantine(tmp_path / "gpu-001", problems).message.endswith("cannot be read")
    assert [problem.code for problem in problems] == ["FILE-UNREADABLE"]
    assert saved_system(tmp_path / "gpu-001") is None


def test_a_host_without_a_quarantine_is_not_kept_out(tmp_path):
    problems = []
    assert load_quarantine(tmp_path / "gpu-001", problems) is None
    assert problems == []


def test_a_survey_of_another_release_only_hides_the_system(tmp_path):
    (tmp_path / "survey.json").write_text('{"schema": "apiary.survey/v9"}')
    assert saved_system(tmp_path) is None
