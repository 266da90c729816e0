# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tuning of the double leaves: its state on the controller, and the host as it was.

The scenario `tune` runs it: killed after its first trial, run again, and run once more.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAB = os.environ.get("APIARY_LAB", "demo")
ROOT_OF_LABS = Path(os.environ.get("APIARY_LAB_DIR") or ROOT / ".lab")
PLACE = ROOT_OF_LABS / LAB / "artifacts/tune/qwen3-235b"
UNITS = ("apiary-qwen3-235b-0.service", "apiary-qwen3-235b-1.service")


def shell(line):
    """What a line of shell says, as root on the host."""
    command = [sys.executable, "tests/lab/lab.py", "ssh", "--name", LAB, "gpu-001"]
    return subprocess.run(
        [*command, f"sudo sh -c {shlex.quote(line)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.fixture(scope="module")
def state():
    return json.loads((PLACE / "state.json").read_text())


@pytest.fixture(scope="module")
def by_label(state):
    return {one["label"].removeprefix("DP2/TP4/EP4").strip(): one for one in state["candidates"]}


def outcomes(state, candidate):
    return [one["outcome"] for one in state["trials"] if one["candidate"] == candidate["id"]]


def test_the_faster_one_is_chosen(state, by_label):
    choice = state["choice"]
    assert choice["verdict"] == "better"
    assert choice["candidate"] == by_label["max_num_seqs=16"]["id"]
    assert choice["score"]["mean"] > 1.5 * choice["current"]["mean"]


def test_the_one_that_cannot_start_has_its_cause(state, by_label):
    (crashed,) = [one for label, one in by_label.items() if "soon" in label]
    (outcome,) = outcomes(state, crashed)
    assert outcome["status"] == "failed"
    assert "ValueError: could not convert string to float: 'soon'" in outcome["cause"]
    assert "REPLICA-ENGINE-DIED" in outcome["cause"]


def test_the_winner_is_a_file_of_variables():
    file = ROOT / "tests/tune/deployment.yml"
    before = yaml.safe_load(file.read_text())["apiary_deployment"]
    after = yaml.safe_load((PLACE / "tuned.yml").read_text())["apiary_deployment"]
    assert (before["limits"]["max_num_seqs"], after["limits"]["max_num_seqs"]) == (2, 16)
    assert (before["name"], before["model"]["path"]) == (after["name"], after["model"]["path"])


def test_what_was_measured_before_the_interruption_counts(state):
    """Three short trials and two engine runs of two finalists: none was measured twice."""
    kinds = [one["kind"] for one in state["trials"]]
    assert (kinds.count("short"), kinds.count("final")) == (3, 4)
    assert not any(one["attempt"] for one in state["trials"])
    for one in state["trials"]:
        if one["outcome"]["status"] == "measured":
            bench = json.loads((PLACE / one["outcome"]["path"]).read_text())
            assert bench["schema"] == "apiary.bench/v2"
            assert bench["environment"]["hosts"] == ["gpu-001"]


def test_the_host_serves_what_it_served_before():
    plan = json.loads(shell("cat /etc/apiary/qwen3-235b/plan.json"))
    assert plan["deployment"]["limits"]["max_num_seqs"] == 2
    kept = "/var/lib/apiary/releases/qwen3-235b"
    assert (
        shell(f"diff {kept}/current/files/etc/apiary/qwen3-235b/plan.json /etc/apiary/qwen3-235b/")
        == ""
    )
    assert shell(f"systemctl is-active {' '.join(UNITS)}").split() == ["active", "active"]
    # No trial became a release that somebody could go back to, and nobody holds the host.
    tried = f"grep -l '--max-num-seqs=16\\|\"max_num_seqs\": 16' -r {kept}"
    assert shell(tried) == ""
    assert shell("ls /var/lib/apiary/rollout") == ""
