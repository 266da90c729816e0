# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every drift of a right host is a check that fails, names its subject, and has a remedy."""

from dataclasses import replace

import pytest

from support.host.rocm import Machine, changes

RUNNING = Machine().running
OLDER = "6.8.0-99-generic"


def right(**given):
    return Machine(**given).right()


def without(machine, *names):
    kept = {name: one for name, one in machine.packages.items() if name not in names}
    return replace(machine, packages=kept)


def with_package(machine, name, version):
    return replace(machine, packages={**machine.packages, name: version})


def with_file(machine, path, text):
    files = {name: one for name, one in machine.files.items() if name != path}
    return replace(machine, files={**files, path: text} if text is not None else files)


DRIFTS = {
    "the distribution's package": (
        with_package(right(), "rocminfo", "5.7.1-3build1"),
        "ROCM-SHADOWED",
        "rocminfo",
    ),
    "half-configured": (
        replace(right(), broken=("amdgpu-dkms",)),
        "ROCM-HALF-CONFIGURED",
        "amdgpu-dkms",
    ),
    "other stream": (
        with_package(right(), "amdrocm-base10.0", "10.0.0-4"),
        "ROCM-STREAM",
        "legacy",
    ),
    "not built": (replace(right(), builds={}), "ROCM-DKMS", f"kernel {RUNNING} (running)"),
    "headers gone": (
        replace(right(), builds={}, headers=()),
        "ROCM-HEADERS",
        f"kernel {RUNNING} (running)",
    ),
    "kernel added": (
        replace(right(), kernels=(RUNNING, OLDER), headers=(RUNNING,)),
        "ROCM-HEADERS",
        f"kernel {OLDER}",
    ),
    "modules gone": (
        without(right(), f"linux-modules-extra-{RUNNING}"),
        "ROCM-KERNEL-MODULES",
        f"kernel {RUNNING}",
    ),
    "in-box driver": (
        replace(right(), loaded={"srcversion": "INBOX"}),
        "ROCM-DRIVER-LOADED",
        "amdgpu",
    ),
    "another driver": (
        replace(right(), loaded={"version": "6.14.14"}),
        "ROCM-DRIVER-LOADED",
        "amdgpu",
    ),
    "no driver": (replace(right(), loaded=None), "ROCM-DRIVER-LOADED", "amdgpu"),
    "blacklisted": (
        replace(right(), loaded=None, cmdline="modprobe.blacklist=nouveau,amdgpu"),
        "ROCM-BLACKLISTED",
        "amdgpu",
    ),
    "blacklisted by a file": (
        with_file(replace(right(), loaded=None), "/etc/modprobe.d/x.conf", "blacklist amdgpu\n"),
        "ROCM-BLACKLISTED",
        "amdgpu",
    ),
    "in-box driver next": (
        replace(right(), module_file=f"/lib/modules/{RUNNING}/kernel/drivers/gpu/amdgpu.ko"),
        "ROCM-DKMS",
        "modprobe",
    ),
    "old initial ramdisk": (replace(right(), ramdisk_at=0.0), "ROCM-INITRAMFS", RUNNING),
    "a render node less": (replace(right(), render_nodes=7), "ROCM-DEVICES", "/dev"),
    "built of another release": (
        replace(right(), builds={RUNNING: "6.16.13-2327507.24.04"}),
        "ROCM-DKMS",
        f"kernel {RUNNING} (running)",
    ),
    "built, not installed": (
        replace(right(), build_state="built"),
        "ROCM-DKMS",
        f"kernel {RUNNING} (running)",
    ),
    "group of the nodes": (replace(right(), node_group="root"), "ROCM-DEVICES", "/dev/kfd"),
    "mode of the nodes": (
        replace(right(), node_mode="600"),
        "ROCM-DEVICES",
        "/dev/dri/renderD128",
    ),
    "no space": (replace(right(), boot_mib=10), "ROCM-BOOT-SPACE", "/boot"),
    "key not enrolled": (
        replace(right(), secure_boot="SecureBoot enabled"),
        "ROCM-SECURE-BOOT",
        "Secure Boot",
    ),
}
# What no check says, for a run would change it.
DIFFERENCES = {
    "package gone": without(right(), "amd-smi-lib"),
    "package of another release": with_package(right(), "rocm-core", "7.2.3.70203-80~24.04"),
    "not held": replace(right(), held=()),
}
# What the role can do nothing about, or what only a reboot mends.
LEFT_ALONE = {
    "blacklisted",
    "blacklisted by a file",
    "a render node less",
    "built, not installed",
    "group of the nodes",
    "mode of the nodes",
    "in-box driver next",
    "no space",
    "key not enrolled",
    "other stream",
    "in-box driver",
    "another driver",
    "no driver",
}


def failing(plan):
    return [one for one in plan.checks if one.state == "fail"]


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_fails_its_check(name):
    machine, code, subject = DRIFTS[name]
    failed = failing(machine.plan())
    assert (code, subject) in [(one.code, one.subject) for one in failed]
    for one in failed:
        assert one.remedy
        assert one.found != one.expected
        assert one.finding().severity in ("error", "warning")


@pytest.mark.parametrize("machine", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_a_change_and_no_check(machine):
    plan = machine.plan()
    assert failing(plan) == []
    assert changes(plan)
    assert changes(machine.applied(plan).plan()) == {}


@pytest.mark.parametrize("name", sorted(DRIFTS.keys() - LEFT_ALONE))
def test_the_role_mends_a_drift(name):
    machine = DRIFTS[name][0]
    mended = machine.applied(machine.plan()).rebooted().plan()
    assert failing(mended) == []
    assert changes(mended) == {}


@pytest.mark.parametrize("name", ["in-box driver", "another driver", "no driver"])
def test_a_reboot_mends_the_rest(name):
    machine = DRIFTS[name][0]
    plan = machine.plan()
    assert len(plan.reboot) == 1
    assert changes(plan) == {}
    assert failing(machine.rebooted().plan()) == []


def test_a_right_host_passes_everything():
    plan = right().plan()
    assert {one.state for one in plan.checks} == {"pass"}
    assert {"ROCM-DKMS", "ROCM-DRIVER-LOADED", "ROCM-DEVICES"} <= {one.code for one in plan.checks}


def test_a_display_adapter_needs_no_node():
    machine = replace(right(gpus=("74a5", "7fff")), render_nodes=1)
    assert failing(machine.plan()) == []


def test_a_check_says_what_it_found():
    found = {one.subject: one.found for one in right().plan().checks}
    assert found["amdgpu"] == "driver 6.16.13 loaded"
    broken = replace(right(), broken=("rocminfo",)).plan()
    assert ("rocminfo", "not configured") in {(one.subject, one.found) for one in broken.checks}


def test_a_blacklisted_driver_is_loaded_not_rebooted_for():
    failed = failing(DRIFTS["blacklisted"][0].plan())
    remedies = {one.code: one.remedy for one in failed}
    assert "`modprobe amdgpu`" in remedies["ROCM-DRIVER-LOADED"]
    assert "ROCM-BLACKLISTED" not in {one.code for one in failing(DRIFTS["no driver"][0].plan())}


def test_an_open_node_needs_no_group():
    machine = replace(right(), node_group="root", node_mode="666")
    assert failing(machine.plan()) == []


def test_a_half_configured_driver_is_repaired_before_it_is_installed():
    machine = replace(right(), broken=("amdgpu-dkms",), headers=(), builds={})
    plan = machine.plan()
    assert plan.repair == (("dpkg", "--configure", "-a"),)
    assert plan.missing == (
        f"linux-headers-{RUNNING}",
        "amdgpu-dkms=1:6.16.13.30300400-*",
    )


def test_a_ramdisk_is_compared_with_its_own_kernels_driver():
    machine = replace(right(), kernels=(RUNNING, OLDER), headers=(RUNNING,), ramdisk_at=0.0)
    told = [one for one in failing(machine.plan()) if one.code == "ROCM-INITRAMFS"]
    assert [one.subject for one in told] == [RUNNING]


def test_an_older_kernel_without_a_driver_is_a_warning():
    machine = replace(right(), kernels=(RUNNING, OLDER), headers=(RUNNING,))
    told = {one.subject: one.severity for one in failing(machine.plan())}
    assert told == {f"kernel {OLDER}": "warning"}


def test_the_kernel_that_boots_next_is_an_error():
    newer = "6.8.0-110-generic"
    machine = replace(right(), kernels=(RUNNING, newer), headers=(RUNNING,))
    told = [
        (one.subject, one.severity)
        for one in failing(machine.plan())
        if one.code in ("ROCM-HEADERS", "ROCM-DKMS")
    ]
    assert told == [(f"kernel {newer}", "error")] * 2
    assert f"linux-headers-{newer}" in machine.plan().missing
