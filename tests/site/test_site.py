# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tags, limits, and a host that fails beside one that does not."""

import json

import pytest

from .conftest import HOST


def other_hosts(tmp_path, **hosts):
    """Return an inventory of hosts that are the lab's under other names, with other variables."""
    path = tmp_path / "others.json"
    path.write_text(json.dumps({"gpu_hosts": {"hosts": hosts}}))
    return str(path)


def test_a_converged_host_is_left_as_it_is(operator):
    done = operator.play("site")
    assert done.code == 0, done.said
    assert done.recap()["changed"] == 0


def test_a_tag_does_its_part_alone(operator):
    done = operator.play("site", "--tags", "host_tuning")
    assert done.code == 0, done.said
    assert "host_tuning : " in done.said
    assert "rocm : " not in done.said
    assert "replicas : " not in done.said


@pytest.mark.parametrize("step", ["device_plugin", "rocm", "replicas"])
def test_a_step_can_be_left_out(operator, step):
    done = operator.play("site", "--skip-tags", step)
    assert done.code == 0, done.said
    assert done.recap()["changed"] == 0
    assert f"apiary.instinct.{step} : " not in done.said
    assert "host_tuning : " in done.said


def test_a_failing_check_run_writes_no_quarantine(operator):
    done = operator.play("site", "--check", "-e", "rocm_version=no.version")
    assert done.recap()["failed"] == 1
    assert "error: ROCM-VERSION" in done.said
    assert not (operator.artifacts / HOST / "quarantine.json").exists()


def test_a_host_that_fails_is_quarantined_and_the_others_go_on(operator, tmp_path):
    broken = {**operator.variables(), "apiary_deployment": {"name": "broken"}}
    gone = {**operator.variables(), "ansible_port": 1}
    inventory = other_hosts(tmp_path, **{"gpu-broken": broken, "gpu-gone": gone})
    done = operator.play("site", "-i", inventory)
    assert done.code != 0
    assert done.recap()["failed"] == 0
    assert done.recap("gpu-broken")["failed"] == 1
    assert done.recap("gpu-gone")["unreachable"] == 1
    told = operator.document("quarantine.json", "gpu-broken")
    assert told["findings"][0]["code"].startswith("DOC-")
    assert told["findings"][0]["remedy"]
    assert not (operator.artifacts / HOST / "quarantine.json").exists()


def test_a_limit_leaves_the_others_alone(operator, tmp_path):
    inventory = other_hosts(tmp_path, **{"gpu-gone": operator.variables()})
    done = operator.play("site", "-i", inventory, "--limit", HOST)
    assert done.code == 0, done.said
    assert "gpu-gone" not in done.said


def test_probe_saves_what_topology_reads(operator):
    done = operator.play("probe")
    assert done.code == 0, done.said
    evidence = operator.document("evidence.json")
    assert evidence["schema"] == "apiary.evidence/v1"
    assert "/etc/os-release" in evidence["files"]
