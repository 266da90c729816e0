# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tuning between configurations of real vLLM: run by `make e2e`, on the lab that it has up."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# How many requests the engine works on at once is a difference that no busy machine hides.
ASKED = {
    # The present one at a time, and two others: three configurations.
    "tune_knobs": {"layouts": [], "max_num_seqs": [2, 8]},
    # More in flight than any of them takes, so that the client's own delay leaves no slot empty.
    "tune_workload": "32/16",
    "tune_concurrency": 12,
    # On a busy machine one engine run of three may be half as fast, and the choice is still sure.
    "tune_budget": {"engine_runs": 3, "confirm_engine_runs": 3, "repeats": 1},
    # Each start of vLLM's client takes longer than what it measures here, so no level is there to
    # warm up alone: each sends as many requests ahead as are in flight (--num-warmups).
    "tune_rules": {"warmup_most": 0, "requests_least": 144},
    "tune_self_test": False,
    "tune_serving": True,
}


@pytest.fixture(scope="module")
def tune(plan):
    """Run the playbook as an operator would; return what it said."""
    if plan["deployment"]["name"] != "smol":
        pytest.skip("needs real vLLM")
    # Molecule's own inventory and callbacks are not the operator's.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}

    def tune(*options):
        done = subprocess.run(
            [
                *("ansible-playbook", "-i", "inventory/lab", "playbooks/tune.yml"),
                *("-e", f"@{HERE / 'tune_variables.yml'}", "-e", json.dumps(ASKED), *options),
            ],
            cwd=ROOT,
            env={**clean, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-20000:] + done.stderr
        return done.stdout

    return tune


@pytest.fixture(scope="module")
def tuned(tune, variables):
    """The state of a tuning that was requested anew, its directory, and what was said."""
    said = tune("-e", "tune_restart=true")
    place = Path(variables["apiary_artifacts"]) / "tune/smol"
    return json.loads((place / "state.json").read_text()), place, said


def test_the_check_names_the_candidates_and_changes_nothing(tune, host):
    before = host.check_output("systemctl show --property=InvocationID 'apiary-smol-*'")
    said = tune("--check", "-e", "tune_restart=true")
    assert "max_num_seqs=2" in said
    assert "max_num_seqs=8" in said
    assert host.check_output("systemctl show --property=InvocationID 'apiary-smol-*'") == before


def test_three_configurations_are_measured_by_vllms_own_client(tuned):
    state, place, _said = tuned
    measured = {
        one["candidate"] for one in state["trials"] if one["outcome"]["status"] == "measured"
    }
    assert len(measured) == 3
    for path in place.glob("*/bench.json"):
        for level in json.loads(path.read_text())["levels"]:
            assert level["client"]["backend"] == "vllm"
            assert level["client"]["version"].startswith("0.32.0")


def test_a_repeat_confirms_the_choice(tuned):
    choice = tuned[0]["choice"]
    assert (choice["verdict"], choice["confirmed"]) == ("better", True)
    assert choice["repeat"]["low"] > 1


def test_it_ends_with_a_report_and_a_diff(tuned):
    _state, place, said = tuned
    assert "max_num_seqs" in (place / "report.html").read_text()
    tuned = (place / "tuned.yml").read_text()
    assert any(f"max_num_seqs: {most}\n" in tuned for most in (2, 8))
    assert "a repeat confirms it" in said


def test_the_host_serves_as_before_and_gets_requests(tuned, tune, host, plan):
    assert json.loads(host.file("/etc/apiary/smol/plan.json").content_string) == plan
    units = [one["unit"] for one in plan["replicas"]]
    assert host.check_output(f"systemctl is-active {' '.join(units)}").split() == ["active"] * len(
        units
    )
    assert " changed=0 " in tune()
