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
# What sudo prints before a command's own output.
SUDO = "sudo: unable to resolve host gpu-001: Name or service not known"
TASKS = {
    "survey": {"concerns": ["host_tuning"], "dest": "made"},
    "evidence_info": {"scopes": ["tuning"]},
    "converge": {"resources": []},
    "bench": {
        **{"name": "b", "dest": "made", "urls": ["http://127.0.0.1:1"], "workload": "8/8"},
        **{"slo": "ttft:p90:2s"},
    },
    "weights_publish": {"store": "/nowhere", "repository": "o/n", "revision": "a" * 40},
}
# What a module prints that read far more than any host has.
LARGE = (
    """printf '{"changed": false, "evidence": {"files": {"/sys/x": "';"""
    """ head -c 9000000 /dev/zero | tr '\\0' x; printf '"}}}'"""
)


@pytest.fixture
def play(tmp_path):
    """Run a play on this machine, which stands for a host; return what it printed."""

    def play(each, others=None, **variables):
        hosts = {"old-1": variables, **(others or {})}
        every = {"hosts": hosts, "vars": {"ansible_connection": "local"}}
        (tmp_path / "inventory.json").write_text(json.dumps({"all": every}))
        whole = [{"hosts": "all", "gather_facts": False, **each}]
        (tmp_path / "play.json").write_text(json.dumps(whole))
        return run_playbook("-i", "inventory.json", "play.json", cwd=tmp_path).stdout

    return play


@pytest.fixture
def python(tmp_path):
    """Make a Python that says its version, and ends at anything else."""

    def python(version, end):
        path = tmp_path / "python3"
        text = f'#!/bin/sh\ncase "$*" in *version_info*) printf "{version}\\n";; *) {end};; esac\n'
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


@pytest.mark.parametrize("name", TASKS)
def test_the_host_of_an_older_python_is_the_one_a_task_is_delegated_to(play, python, name):
    path = python("3.8", ENDS[0])
    task = {f"apiary.instinct.{name}": TASKS[name], "delegate_to": "{{ groups.all | last }}"}
    others = {"router-1": {"ansible_python_interpreter": path}}
    printed = play({"hosts": "old-1", "tasks": [task]}, others)
    assert f"DOCTOR-HOST-PYTHON: router-1: found Python 3.8 at {path}" in printed
    assert "ansible router-1 -m" in printed


@pytest.mark.parametrize("name", ["survey", "evidence_info"])
def test_too_much_evidence_is_of_the_host_that_was_probed(play, python, name):
    others = {"router-1": {"ansible_python_interpreter": python("3.11", LARGE)}}
    task = {f"apiary.instinct.{name}": TASKS[name], "delegate_to": "router-1"}
    printed = play({"hosts": "old-1", "tasks": [task]}, others)
    assert "PROBE-SIZE: router-1: its evidence has 9000" in printed


def test_an_older_python_is_found_below_what_a_terminal_shows(play, python):
    path = python(f"{SUDO}\\r\\n3.8\\r", ENDS[0])
    task = {"apiary.instinct.survey": TASKS["survey"]}
    printed = play({"tasks": [task]}, ansible_python_interpreter=path)
    assert f"DOCTOR-HOST-PYTHON: old-1: found Python 3.8 at {path}, expected" in printed


@pytest.mark.parametrize("shown", ["3.9", "3.10", f"{SUDO}\\r\\n3.11\\r", SUDO, "1.8 GB free"])
def test_another_failure_of_a_module_is_not_laid_on_the_host_s_python(play, python, shown):
    path = python(shown, 'echo "OSError: out of inodes" >&2; exit 1')
    task = {"apiary.instinct.survey": TASKS["survey"]}
    printed = play({"tasks": [task]}, ansible_python_interpreter=path)
    assert "OSError: out of inodes" in printed
    assert "DOCTOR-HOST-PYTHON" not in printed


def test_the_role_replicas_without_a_plan_is_one_error(play):
    printed = play({"roles": ["apiary.instinct.replicas"]})
    assert printed.count("[ERROR]") == 1
    assert "FLEET-VARIABLE: old-1: replicas_plan: is not set" in printed
    assert "remedy: Correct replicas_plan" in printed
