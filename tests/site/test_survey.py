# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A right host costs one remote task; each drift is its concern's alone, and site mends it."""

import re

import pytest

from .conftest import applied

UNIT = "apiary-qwen3-235b-1.service"
# What happens to the host by concern, and what a survey says would change.
THEIRS = "/etc/apt/sources.list.d/amdgpu.list"
DRIFTS = {
    "rocm": [
        ("apt-mark unhold amdgpu-dkms", "apt-mark hold amdgpu-dkms"),
        (
            "sed -i s/30.30.4/30.20.1/ /etc/apt/sources.list.d/amdgpu.sources",
            "/etc/apt/sources.list.d/amdgpu.sources",
        ),
    ],
    "host_tuning": [
        ("sysctl -qw kernel.numa_balancing=1", "/proc/sys/kernel/numa_balancing"),
        ("echo nothing >> /etc/sysctl.d/zz-apiary.conf", "/etc/sysctl.d/zz-apiary.conf"),
    ],
    "weight_cache": [
        ("rm /usr/libexec/apiary/weights-check", "/usr/libexec/apiary/weights-check"),
    ],
    "replicas:qwen3-235b": [
        (f"systemctl stop {UNIT}", f"start: {UNIT}"),
        (f"chmod 0600 /etc/systemd/system/{UNIT}", f"/etc/systemd/system/{UNIT}"),
        (
            "rm /var/lib/apiary/releases/qwen3-235b/current",
            "/var/lib/apiary/releases/qwen3-235b",
        ),
    ],
}


def unsettled(operator):
    """Survey the host; return what would change by concern, of those that are not settled."""
    done = operator.play("survey")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 0
    told = operator.document("survey.json")
    assert told["reached"] is True
    return {
        one["concern"]: [change["subject"] for change in one["changes"]]
        for one in told["concerns"]
        if not one["settled"]
    }


def modules(said):
    """Return the modules that ran on hosts, in order."""
    return re.findall(r"^Using module file .*/(\w+)\.py", said, re.MULTILINE)


def test_a_converged_host_costs_one_task_of_two_module_calls(operator):
    # Routers are hosts of their own, with modules of their own.
    done = operator.play("site", "-vvv", "--skip-tags", "router")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 0
    assert modules(done.output) == ["evidence_info", "converge"]
    # As a run that had decided everything leaves them.
    assert operator.document("plan.json")["deployment"]["name"] == "qwen3-235b"
    assert (operator.artifacts / "gpu-001/files/etc/systemd/system" / UNIT).is_file()


@pytest.mark.parametrize("concern", list(DRIFTS))
def test_a_drift_is_its_concern_s_alone(operator, concern):
    for line, _subject in DRIFTS[concern]:
        operator.shell(line)
    told = unsettled(operator)
    assert set(told) == {concern}
    assert {subject for _line, subject in DRIFTS[concern]} <= set(told[concern])
    done = operator.play("site", "-v")
    assert done.code == 0, done.output
    assert done.recap()["changed"] > 0
    assert applied(done.output) == {concern}
    # The survey is brought up to date by what was applied.
    assert all(one["settled"] for one in operator.document("survey.json")["concerns"])


def test_a_check_run_tells_the_drift_and_leaves_it(operator):
    operator.shell(f"sysctl -qw kernel.numa_balancing=1; echo > {THEIRS}")
    try:
        done = operator.play("site", "--check", "--diff")
        assert done.code == 0, done.output
        assert done.recap()["changed"] == 1
        assert "+++ after: /proc/sys/kernel/numa_balancing" in done.output
        # What another installer left, and nothing of Apiary's own.
        assert re.findall("(?m)^ +(replace|remove|change|keep) .*", done.output) == ["remove"]
        assert re.search(f"(?m)^ +remove +rocm +{THEIRS}$", done.output)
        assert not (operator.artifacts / "gpu-001").exists()
    finally:
        operator.shell(f"sysctl -qw kernel.numa_balancing=0; rm {THEIRS}")


def test_a_host_that_is_gone_is_in_its_survey(operator, tmp_path):
    gone = {**operator.variables(), "ansible_port": 1}
    inventory = operator.inventory(tmp_path, **{"gpu-gone": gone})
    done = operator.play("survey", "-i", inventory, "--limit", "gpu-gone")
    assert done.code == 0, done.output
    told = operator.document("survey.json", "gpu-gone")
    assert told["reached"] is False
    assert [one["code"] for one in told["findings"]] == ["FLEET-UNREACHABLE"]
