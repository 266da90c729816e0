# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a cut run leaves, and when the next one asks again."""

import json
import sys
from pathlib import Path

import pytest

from engine import bench
from engine.cases import Case
from engine.environment import MARK, Environment

# Stands in for the judge: it answers each case, and notes what it is asked; it dies at "dies".
JUDGE = """import json, sys
for case in json.load(sys.stdin)["cases"]:
    print(case["id"], file=sys.stderr)
    if case["id"] == "dies":
        print('{"id": "di', end="", flush=True)
        sys.exit(1)
    found = {"broken": "no memory"} if case["id"] == "breaks" else {"stage": "accepted"}
    print(json.dumps({"id": case["id"], "key": case["key"], **found}), flush=True)
"""


@pytest.fixture
def hear(tmp_path, monkeypatch):
    """Put cases to the stand-in; returns the opinions and the ids that it was asked."""
    inside = tmp_path / "inside"
    for directory in ("home", "inside", "sources/vllm-1.dist-info", "model"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "home" / MARK).write_text("today")
    (tmp_path / "sources/vllm-1.dist-info/METADATA").write_text(
        "Name: vllm\nRequires-Dist: transformers<5.20\n"
    )
    (tmp_path / "model/config.json").write_text("{}")
    (inside / "judge.py").write_text(JUDGE)
    monkeypatch.setattr(bench, "JUDGE", inside / "judge.py")
    python = tmp_path / "home" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    log = tmp_path / "vllm.log"

    def put(*names, only_kept=False, flags=(), fails=False):
        cases = [
            Case(name, "MI325X", ("serve", str(tmp_path / "model"), name, *flags), {})
            for name in names
        ]
        log.unlink(missing_ok=True)
        env = Environment(python, {})
        if fails:
            with pytest.raises(bench.UnavailableError):
                bench.opinions(tmp_path / "sources", env, cases, "MI325X", log, only_kept)
            return None
        found = bench.opinions(tmp_path / "sources", env, cases, "MI325X", log, only_kept)
        return set(found), log.read_text().split() if log.is_file() else []

    return put


def test_a_cut_run_goes_on_where_it_ended(hear):
    hear("one", "two", "dies", "three", fails=True)
    assert hear("one", "two", "three") == ({"one", "two", "three"}, ["three"])
    assert hear("one", "two", "three") == ({"one", "two", "three"}, [])


def test_what_a_cut_run_has_shown_can_be_read_without_a_judge(hear):
    hear("one", "dies", "two", fails=True)
    assert hear("one", "two", only_kept=True) == ({"one"}, [])


def test_what_could_not_be_judged_is_tried_again(hear):
    assert hear("breaks", "one") == ({"breaks", "one"}, ["breaks", "one", "breaks", "breaks"])
    assert hear("breaks", "one")[1] == 3 * ["breaks"]


def test_another_command_or_config_is_asked_again(hear, tmp_path):
    hear("one")
    assert hear("one", flags=["--more"])[1] == ["one"]
    (tmp_path / "model/config.json").write_text('{"changed": 1}')
    assert hear("one")[1] == ["one"]


@pytest.mark.parametrize("changed", ["home/stamp", "inside/node.py"])
def test_another_environment_or_judge_is_asked_again(hear, tmp_path, changed):
    hear("one")
    (tmp_path / changed).write_text("other")
    assert hear("one")[1] == ["one"]


def test_the_same_model_is_not_written_twice(tmp_path):
    from engine.models import _write

    text = json.dumps({"model_type": "llama"})
    _write(tmp_path, text)
    Path(tmp_path / "config.json").chmod(0o444)
    before = (tmp_path / "config.json").stat().st_mtime_ns
    _write(tmp_path, text)
    assert (tmp_path / "config.json").stat().st_mtime_ns == before
