# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What comes to a host, and what the supervisor reads there."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render import unit
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import read_spec

from .conftest import spec


def test_the_package_comes_before_its_entry_and_is_whole():
    files = unit.supervisor_files()
    assert files[-1][:2] == (unit.LAUNCHER, "0755")
    assert {mode for _path, mode, _text in files[:-1]} == {"0644"}
    names = {os.path.basename(path) for path, _mode, _text in files}
    assert {"__init__.py", "main.py", "supervise.py", "life.json"} <= names


def test_hosts_have_python_39():
    for path, _mode, text in unit.supervisor_files():
        if not path.endswith(".json"):
            ast.parse(text, path, feature_version=(3, 9))


def test_the_entry_is_small_and_the_files_are():
    files = unit.supervisor_files()
    lengths = [text.count("\n") for path, _mode, text in files if not path.endswith(".json")]
    assert max(lengths) < 400


def test_a_spec_comes_back_as_it_was_written(tmp_path):
    wanted = spec(gpus=("0000:05:00.0",), memory_nodes=(0,), secrets=("HF_TOKEN",))
    path = tmp_path / "replica-0.json"
    later = {"schema": "apiary.launch/v1", "field_of_tomorrow": 1}
    path.write_text(json.dumps({**asdict(wanted), **later}))
    assert read_spec(str(path)) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "apiary.launch/v2"}', '{"schema": "apiary.launch/v1"}', None],
)
def test_a_spec_that_is_damaged_is_refused(tmp_path, text):
    path = tmp_path / "replica-0.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ApiaryError) as caught:
        read_spec(str(path))
    assert caught.value.findings[0].code == "REPLICA-SPEC"


@pytest.fixture
def installed(tmp_path):
    """The supervisor as a host has it; run it with some words."""
    for path, _mode, text in unit.supervisor_files():
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def run(*words):
        entry = tmp_path / unit.LAUNCHER.lstrip("/")
        return subprocess.run(
            [sys.executable, "-B", entry, *words], capture_output=True, text=True, check=False
        )

    return run


def test_a_missing_spec_stays_down(installed):
    done = installed("run", "--spec", "/nonexistent.json", "--", "/bin/true")
    assert done.returncode == 78
    assert done.stderr.startswith("error: REPLICA-SPEC: nonexistent.json: cannot read")
    assert "Traceback" not in done.stderr


def test_check_tells_every_refusal_at_once(installed, tmp_path):
    document = spec(gpus=("0000:ff:00.0",), cpus="4000", weights="/nonexistent", port=1)
    path = tmp_path / "replica-0.json"
    path.write_text(json.dumps({"schema": "apiary.launch/v1", **asdict(document)}))
    done = installed("check", "--spec", str(path))
    assert done.returncode == 78
    for code in ("REPLICA-GPU-MISSING", "REPLICA-BINDING", "REPLICA-WEIGHTS"):
        assert f"error: {code}: " in done.stderr
    outside = installed("check", "--outside", "--spec", str(path))
    assert outside.returncode == 78
    assert "REPLICA-BINDING" not in outside.stderr
