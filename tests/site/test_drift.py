# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Acceptance is green on the right host, and names each drift with what to do about it."""

import pytest

UNIT = "apiary-qwen3-235b-1.service"
# What happens to the host, what mends it, and the codes that name it.
DRIFTS = {
    "balancing of memory is on again": (
        "sysctl -qw kernel.numa_balancing=1",
        "sysctl -qw kernel.numa_balancing=0",
        {"ACCEPT-DRIFT"},
    ),
    "the file of kernel values is gone": (
        "mv /etc/sysctl.d/zz-apiary.conf /root/",
        "mv /root/zz-apiary.conf /etc/sysctl.d/",
        {"ACCEPT-DRIFT"},
    ),
    "the next kernel would lose its arguments": (
        "mv /etc/default/grub.d/zz-apiary.cfg /root/",
        "mv /root/zz-apiary.cfg /etc/default/grub.d/",
        {"ACCEPT-DRIFT"},
    ),
    "the driver is another one": (
        "echo 6.10.5 > /sys/module/amdgpu/version",
        "modinfo -F version amdgpu > /sys/module/amdgpu/version",
        {"ROCM-DRIVER-LOADED"},
    ),
    "the driver may be upgraded by anybody": (
        "apt-mark unhold amdgpu-dkms",
        "apt-mark hold amdgpu-dkms",
        {"ACCEPT-DRIFT"},
    ),
    "a repository points elsewhere": (
        "sed -i.bak s/30.30.4/30.20.1/ /etc/apt/sources.list.d/amdgpu.sources",
        "mv /etc/apt/sources.list.d/amdgpu.sources.bak /etc/apt/sources.list.d/amdgpu.sources",
        {"ACCEPT-DRIFT"},
    ),
    "a replica is stopped": (
        f"systemctl stop {UNIT}",
        f"systemctl start {UNIT}",
        {"ACCEPT-REPLICA", "ACCEPT-PORT"},
    ),
    "a unit was edited": (
        f"sed -i.bak s/Restart=/#Restart=/ /etc/systemd/system/{UNIT}",
        f"mv /etc/systemd/system/{UNIT}.bak /etc/systemd/system/{UNIT}",
        {"ACCEPT-UNIT-FILE"},
    ),
    "the kernel counted memory errors": (
        "echo ue: 3 > /sys/class/drm/card0/device/ras/umc_err_count",
        "echo ue: 0 > /sys/class/drm/card0/device/ras/umc_err_count",
        {"ACCEPT-UNCORRECTABLE", "TOPO-MEMORY-ERRORS"},
    ),
    "the power cap was lowered": (
        "echo 750000000 > $(ls -d /sys/class/drm/card0/device/hwmon/hwmon*)/power1_cap",
        "echo 1000000000 > $(ls -d /sys/class/drm/card0/device/hwmon/hwmon*)/power1_cap",
        {"ACCEPT-POWER-CAP"},
    ),
}


def test_the_right_host_is_accepted(operator):
    done = operator.play("verify")
    assert done.code == 0, done.output
    assert done.recap()["changed"] == 0
    judged = operator.document("acceptance.json")
    assert judged["accepted"] is True
    assert [one for one in judged["checks"] if one["state"] == "fail"] == []


def test_drifts_are_named_with_their_remedies(operator, drifted):
    """All at once, because a run takes seconds; each alone is told in tests/unit."""
    failed = operator.failed()
    wanted = {code for _done, _mended, codes in DRIFTS.values() for code in codes}
    assert set(failed) == wanted
    assert all(failed.values())


@pytest.fixture
def drifted(operator):
    """The host with every drift, and without again."""
    for done, _mended, _codes in DRIFTS.values():
        operator.shell(done)
    yield
    for _done, mended, _codes in DRIFTS.values():
        operator.shell(mended)
