# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What package managers, DKMS, mokutil and the bus print, as the decisions read it."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm.host import (
    Build,
    Loaded,
    read,
)


def state(files=None, exits=0, **said):
    commands = {name: CommandOutput((name,), exits, text, "", 0.0) for name, text in said.items()}
    return read(Evidence("gpu-001", "2026-11-21T00:00:00Z", "2", commands, files or {}))


def test_nothing_told_is_nothing_known():
    told = state()
    assert told.packages == {}
    assert told.kernels == ()
    assert told.loaded is told.boot_mib is told.enrolled is None


def test_dpkg_states_tell_what_is_installed_and_what_is_half():
    told = state(
        exits=1,  # dpkg-query's, where one of the patterns has no package
        dpkg_packages="ii \tdkms\t3.0.11\nhi \tamdgpu-dkms-firmware\t2\niF \tamdgpu-dkms\t1:2\n"
        "un \trocm\t\nrc \tamdgpu-install\t6\niU \trccl\t2\n",
    )
    assert set(told.packages) == {"dkms", "amdgpu-dkms-firmware", "amdgpu-dkms", "rccl"}
    assert told.broken == ("amdgpu-dkms", "rccl")


def test_dpkg_tells_of_any_half_configured_package():
    audit = (
        "The following packages are only half configured, probably due to problems\n"
        "configuring them the first time.\n"
        " linux-headers-6.17.0-14-generic Linux kernel headers\n"
        " libc6:amd64            GNU C Library\n"
    )
    assert state(dpkg_audit=audit).broken == ("linux-headers-6.17.0-14-generic", "libc6")


def test_one_rpm_may_be_installed_in_two_versions():
    told = state(rpm_packages="ii\tkernel-core\t5.14.0-427.el9\nii\tkernel-core\t5.14.0-570.el9\n")
    assert told.packages["kernel-core"] == ("5.14.0-427.el9", "5.14.0-570.el9")
    assert told.version("kernel-core") == "5.14.0-570.el9"


@pytest.mark.parametrize(
    ("line", "build"),
    [
        (
            "amdgpu/6.16.13-2341068.24.04, 6.8.0-101-generic, x86_64: installed",
            Build("6.16.13-2341068.24.04", "6.8.0-101-generic", "installed"),
        ),
        (
            "amdgpu, 6.12.12-2194681.22.04, 5.15.0-119-generic, x86_64: installed",
            Build("6.12.12-2194681.22.04", "5.15.0-119-generic", "installed"),
        ),
        (
            "amdgpu/6.16.13-2341068.24.04, 6.8.0-101-generic, x86_64: built (WARNING! Diff)",
            Build("6.16.13-2341068.24.04", "6.8.0-101-generic", "built"),
        ),
        ("amdgpu/7.1.3-2390945.24.04: added", Build("7.1.3-2390945.24.04", None, "added")),
    ],
)
def test_dkms_status_is_read_in_its_forms(line, build):
    told = state(dkms_status=f"nvidia/555.42, 6.8.0-101, x86_64: installed\n{line}\n")
    assert told.builds == (build,)


def test_the_in_box_driver_has_no_version():
    files = {"/sys/module/amdgpu/initstate": "live\n", "/sys/module/amdgpu/srcversion": "A\n"}
    assert state(files).loaded == Loaded(None, "A")


@pytest.mark.parametrize(
    ("said", "secure", "enrolled"),
    [
        ("SecureBoot enabled\n", True, False),
        ("SecureBoot disabled\n", False, None),
        ("EFI variables are not supported on this system\n", False, None),
    ],
)
def test_secure_boot_is_told_by_mokutil(said, secure, enrolled):
    told = state(secure_boot=said, mok_shim="/var/lib/shim-signed/mok/MOK.der is not enrolled\n")
    assert (told.secure_boot, told.enrolled) == (secure, enrolled)


def test_either_key_that_dkms_signs_with_will_do():
    told = state(
        secure_boot="SecureBoot enabled\n", mok_dkms="/var/lib/dkms/mok.pub is already enrolled\n"
    )
    assert told.enrolled is True


def test_rescue_kernels_are_not_booted():
    told = state(
        {"/proc/sys/kernel/osrelease": "5.14.0-570.el9.x86_64\n"},
        kernels="/boot/vmlinuz-5.14.0-570.el9.x86_64\n/boot/vmlinuz-0-rescue-3f2a\n"
        "/boot/vmlinuz-5.14.0-611.el9.x86_64\n",
    )
    assert told.kernels == ("5.14.0-611.el9.x86_64", "5.14.0-570.el9.x86_64")


@pytest.mark.parametrize(
    "cmdline",
    ["modprobe.blacklist=amdgpu", "ro module_blacklist=radeon,amdgpu quiet"],
)
def test_a_command_line_can_blacklist(cmdline):
    assert state({"/proc/cmdline": cmdline}).blacklisted


@pytest.mark.parametrize(
    ("text", "blacklisted"),
    [
        ("blacklist amdgpu\n", True),
        ("# blacklist amdgpu\n", False),
        ("blacklist amdgpu_virt\n", False),
        ("install amdgpu /bin/false\n", True),
        ("options amdgpu noretry=0\n", False),
    ],
)
def test_a_file_can_blacklist(text, blacklisted):
    told = state({"/etc/modprobe.d/x.conf": text})
    assert (told.blacklisted == "/etc/modprobe.d/x.conf") is blacklisted


def test_gpus_are_told_by_their_ids_and_class():
    alias = "pci:v{}d0000{}sv00001002sd00000000bc{}sc00i00\n"
    files = {
        "/sys/bus/pci/devices/0000:05:00.0/modalias": alias.format("00001002", "74A5", "12"),
        "/sys/bus/pci/devices/0000:06:00.0/modalias": alias.format("00001002", "74B9", "12"),
        "/sys/bus/pci/devices/0000:07:00.0/modalias": alias.format("00001002", "7FFF", "03"),
        "/sys/bus/pci/devices/0000:08:00.0/modalias": alias.format("00001002", "1478", "06"),
        "/sys/bus/pci/devices/0000:09:00.0/modalias": alias.format("00001A03", "2000", "03"),
    }
    told = [(gpu.model, gpu.gfx) for gpu in state(files).gpus]
    assert told == [("MI325X", "gfx942"), ("MI325X", "gfx942"), (None, None)]


def test_holds_are_read_of_each_package_manager():
    versions = "# by hand\namdgpu-dkms-firmware-1:30.30.4.0.30300400-2341068.el9.*\n!x-1-1.*\n"
    told = state(
        {"/etc/dnf/plugins/versionlock.list": versions},
        apt_holds="linux-generic\n",
    )
    assert told.held == ("linux-generic", "amdgpu-dkms-firmware")


def test_free_space():
    told = state(
        boot_space="Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        "/dev/sda2 1992552 401208 1470104 22% /boot\n",
    )
    assert told.boot_mib == 1435
