# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run lacks is one error in words: a host's Python, a role's plan."""

import json

import pytest

from support.playbooks import run_playbook

# As Python 3.8 and older end at a module of ours: the words differ, none says why.
ENDS = (
    "echo \"TypeError: 'type' object is not subscriptable\" >&2; exit 1",
    'echo "SyntaxError: future feature annotations is not defined" >&2; exit 1',
)
TASKS = {
    "survey": {"concerns": ["host_tuning"], "dest": "made"},
    "evidence_info": {"scopes": ["tuning"]},
    "converge": {"resources": []},
}


@pytest.fixture
def play(tmp_path):
    """Run a play on this machine, which stands for a host; return what it printed."""

    def play(each, **variables):
        host = {"ansible_connection": "local", **variables}
        (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": {"old-1": host}}}))
        whole = [{"hosts": "all", "gather_facts": False, **each}]
        (tmp_path / "play.json").write_text(json.dumps(whole))
        return run_playbook("-i", "inventory.json", "play.json", cwd=tmp_path).stdout

    return play


@pytest.fixture
def python(tmp_path):
    """Make a Python that says its version, and ends at anything else."""

    def python(version, end):
        path = tmp_path / "python3"
        text = f'#!/bin/sh\ncase "$*" in *version_info*) echo {version};; *) {end};; esac\n'
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return python


@pytest.mark.parametrize("end", ENDS)
def test_a_host_s_older_python_is_refused_in_words(play, python, end):
    path = python("3.8", end)
    tasks = [
        {f"apiary.instinct.{name}": arguments, "ignore_errors": True}
        for name, arguments in TASKS.items()
    ]
    printed = play({"tasks": tasks}, ansible_python_interpreter=path)
    assert printed.count("failed=0") == 1
    assert f"ignored={len(TASKS)}" in printed
    message = f"DOCTOR-HOST-PYTHON: old-1: found Python 3.8 at {path}, expected 3.9 or newer"
    assert f"[ERROR]: Task failed: error: {message}" in printed
    assert printed.count("code: DOCTOR-HOST-PYTHON") == len(TASKS)
    assert "Traceback" not in printed


def test_another_failure_of_a_module_is_not_laid_on_the_host_s_python(play, python):
    path = python("3.9", 'echo "OSError: out of inodes" >&2; exit 1')
    task = {"apiary.instinct.survey": TASKS["survey"]}
    printed = play({"tasks": [task]}, ansible_python_interpreter=path)
    assert "OSError: out of inodes" in printed
    assert "DOCTOR-HOST-PYTHON" not in printed


def test_the_role_replicas_without_a_plan_is_one_error(play):
    printed = play({"roles": ["apiary.instinct.replicas"]})
    assert printed.count("[ERROR]") == 1
    assert "FLEET-VARIABLE: old-1: replicas_plan: is not set" in printed
    assert "remedy: Correct replicas_plan" in printed
