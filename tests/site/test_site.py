# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tags, limits, and a host that fails beside one that does not."""

from .conftest import HOST, applied, changed

BALANCING = "/proc/sys/kernel/numa_balancing"


def test_a_tag_does_its_part_alone(operator):
    operator.shell(f"echo 1 > {BALANCING}; apt-mark unhold amdgpu-dkms")
    done = operator.play("site", "-v", "--tags", "host_tuning")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 1
    assert applied(done.output) == {"host_tuning"}
    assert operator.shell(f"cat {BALANCING}").strip() == "0"
    assert "amdgpu-dkms" not in operator.shell("apt-mark showhold").split()


def test_a_step_can_be_left_out(operator):
    # What the test before has left to do is rocm's.
    operator.shell(f"echo 1 > {BALANCING}")
    done = operator.play("site", "--skip-tags", "rocm")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 1
    assert "amdgpu-dkms" not in operator.shell("apt-mark showhold").split()
    done = operator.play("site")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 1
    assert "amdgpu-dkms" in operator.shell("apt-mark showhold").split()


def test_a_role_that_is_left_out_takes_no_other_with_it(operator):
    script = "/usr/libexec/apiary/weights-check"
    operator.shell(f"rm {script}; systemctl stop apiary-qwen3-235b-1.service")
    done = operator.play("site", "-v", "--skip-tags", "weight_cache")
    assert done.code == 0, done.output
    assert applied(done.output) == {"replicas:qwen3-235b"}
    done = operator.play("site", "-v")
    assert done.code == 0, done.output
    assert applied(done.output) == {"weight_cache"}


def test_check_mode_has_the_reboot_where_there_would_be_one_and_nothing_else(operator):
    version = "/sys/module/amdgpu/version"
    units = "apiary-qwen3-235b-0.service apiary-qwen3-235b-1.service"
    operator.shell(f"systemctl stop {units}; echo 6.10.5 > {version}")
    done = operator.play("site", "--check", "--tags", "rocm")
    assert done.code == 0, done.output
    assert changed(done.output) == ["apiary.instinct.reboot : Reboot"]
    operator.shell(f"modinfo -F version amdgpu > {version}; systemctl start {units}")
    done = operator.play("site", "--check")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 0


def test_a_failing_check_run_writes_no_quarantine(operator):
    done = operator.play("site", "--check", "-e", "rocm_version=no.version")
    assert done.recap()["failed"] == 1
    assert "error: ROCM-VERSION" in done.output
    assert not (operator.artifacts / HOST / "quarantine.json").exists()


def test_a_host_that_fails_is_quarantined_and_the_others_go_on(operator, tmp_path):
    broken = {**operator.variables(), "rocm_version": "no.version"}
    gone = {**operator.variables(), "ansible_port": 1}
    inventory = operator.inventory(tmp_path, **{"gpu-broken": broken, "gpu-gone": gone})
    done = operator.play("site", "-i", inventory)
    assert done.code != 0
    assert done.recap()["failed"] == 0
    assert done.recap("gpu-broken")["failed"] == 1
    assert done.recap("gpu-gone")["unreachable"] == 1
    told = operator.document("quarantine.json", "gpu-broken")
    assert told["findings"][0]["code"] == "ROCM-VERSION"
    assert told["findings"][0]["remedy"]
    assert not (operator.artifacts / HOST / "quarantine.json").exists()


def test_a_limit_leaves_the_others_alone(operator, tmp_path):
    inventory = operator.inventory(tmp_path, **{"gpu-gone": operator.variables()})
    done = operator.play("site", "-i", inventory, "--limit", HOST)
    assert done.code == 0, done.output
    # Named in the validation of the whole inventory, and not run.
    assert "[gpu-gone]" not in done.output
    assert not any(line.startswith("gpu-gone ") for line in done.output.splitlines())


def test_probe_saves_what_topology_reads(operator):
    done = operator.play("probe")
    assert done.code == 0, done.output
    evidence = operator.document("evidence.json")
    assert evidence["schema"] == "apiary.evidence/v1"
    assert "/etc/os-release" in evidence["files"]
