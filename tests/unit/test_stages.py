# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runner of suites: what fails stops nothing, and the table and the exit status tell it."""

from __future__ import annotations

import sys

import pytest
import stages
from stages import Result, Stage


def named(*names):
    return [Stage(name, (name,)) for name in names]


def test_a_stage_that_fails_stops_no_other(tmp_path, capsys):
    begun = []

    def start(stage, log):
        begun.append(stage.name)
        if stage.name == "gone":
            raise FileNotFoundError("no such program")
        if log:
            log.write_text(f"== 1 test of {stage.name} ==\n")
        return 3 if stage.name == "bad" else 0

    phases = [named("bad"), named("gone", "good"), named("last")]
    results = stages.run(phases, tmp_path / "logs", start, clock=lambda: 0.0)
    assert set(begun) == {"bad", "gone", "good", "last"}
    assert [(one.name, one.passed) for one in results] == [
        ("bad", False),
        ("gone", False),
        ("good", True),
        ("last", True),
    ]
    shown = capsys.readouterr().out
    assert "bad: failed (3) in 0 s" in shown
    assert "gone: failed (cannot be run: no such program)" in shown
    assert "== 1 test of good ==\ngood: passed" in shown


def test_the_table_ends_with_the_sum():
    table = stages.table([Result("lint", True, 54.6), Result("molecule", False, 600)], 601.0)
    assert table.splitlines() == [
        "stage     result      time",
        "lint      passed      0:55",
        "molecule  failed     10:00",
        "all       1 failed   10:01",
    ]


@pytest.mark.parametrize(
    ("statuses", "code"), [((0, 0), 0), ((0, 1), 1)], ids=["all pass", "one fails"]
)
def test_the_exit_status_tells_whether_all_passed(monkeypatch, tmp_path, capfd, statuses, code):
    commands = {
        f"stage-{index}": Stage(
            f"stage-{index}", (sys.executable, "-c", f"print('x'); exit({status})")
        )
        for index, status in enumerate(statuses)
    }
    monkeypatch.setattr(stages, "STAGES", commands)
    monkeypatch.setattr(stages, "LOGS", tmp_path)
    assert stages.main(list(commands)) == code
    last = capfd.readouterr().out.splitlines()[-1]
    assert last.startswith("all")
    assert ("failed" in last) == bool(code)


def test_what_is_unknown_is_refused_with_what_there_is(capsys):
    assert stages.main(["nonsense"]) == 2
    refused = capsys.readouterr().err
    assert "no such stage: nonsense" in refused
    assert "molecule" in refused


def test_what_is_of_the_night_has_a_stage_there():
    night = [stage for phase in stages.phases(["night"]) for stage in phase]
    covered = {
        word
        for stage in night
        if any(one.startswith("-m=") and "night" in one for one in stage.argv)
        for word in stage.argv
        if word.startswith("tests/")
    }
    tests = stages.REPOSITORY / "tests"
    marked = {
        f"tests/{path.relative_to(tests).parts[0]}"
        for path in tests.rglob("test_*.py")
        if "mark.night" in path.read_text(encoding="utf-8")
    }
    assert {"tests/unit", "tests/loss"} <= marked
    assert marked <= covered


def test_a_suite_s_stages_exist():
    for name in stages.SUITES:
        chosen = [stage.name for phase in stages.phases([name]) for stage in phase]
        assert chosen
        assert len(set(chosen)) == len(chosen)


def test_ci_has_two_pinned_releases_judged_by_turns_and_skips_where_none_can_be_had():
    (stage,) = (one for phase in stages.phases(["check"]) for one in phase if "engine" in one.name)
    assert "ENGINE=--small --optional --turns 2" in stage.argv
