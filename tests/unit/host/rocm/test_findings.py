# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused or warned of before anything is touched: each fault its one finding."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.host.rocm import MI300X, MI325X_VF, MI355X, SYSTEMS, Machine

CRB = "codeready-builder-for-rhel-9-x86_64-rpms CRB\n"
REPLICA = "apiary-qwen-0.service loaded active running Replica 0\n"


def kernel(system, release):
    return Machine(system, kernels=(release,))


# Whatever is allowed.
BOTH = ("error", "error")
SEVERITIES = [
    # What, its code, its severity, with rocm_allow_unsupported.
    (
        Machine(),
        {"rocm_version": "6.3.0", "driver_version": "6.3.0"},
        "ROCM-VERSION",
        "error",
        None,
    ),
    (Machine(), {"rocm_version": "newest"}, "ROCM-VERSION", "error", "error"),
    (Machine(), {"driver_version": "newest"}, "ROCM-VERSION", "error", "error"),
    (Machine(), {"rocm_version": "7.2.9"}, "ROCM-DRIVER-UNKNOWN", "error", "error"),
    (Machine(), {"driver_version": "31.40.1"}, "ROCM-DRIVER-PAIR", "error", "warning"),
    (
        Machine("debian-13", gpus=(MI300X,) * 8),
        {"rocm_version": "6.4.3"},
        "ROCM-OS-UNSUPPORTED",
        "error",
        "warning",
    ),
    (Machine("rocky-9.6"), {}, "ROCM-GPU-UNSUPPORTED", "warning", "warning"),
    (
        Machine(gpus=(MI355X,)),
        {"rocm_version": "6.4.3"},
        "ROCM-GPU-UNSUPPORTED",
        "error",
        "warning",
    ),
    (Machine(gpus=("7fff", "74a5")), {}, "ROCM-GPU-UNSUPPORTED", "warning", "warning"),
    (Machine(gpus=()), {}, "ROCM-GPU-ABSENT", "error", "warning"),
    (
        kernel("ubuntu-24.04", "6.14.0-37-generic"),
        {},
        "ROCM-KERNEL-UNSUPPORTED",
        "warning",
        "warning",
    ),
    (
        kernel("ubuntu-24.04", "7.0.0-14-generic"),
        {},
        "ROCM-KERNEL-UNSUPPORTED",
        "error",
        "warning",
    ),
    (
        Machine(kernels=("6.8.0-101-generic", "6.18.7-061807-generic")),
        {},
        "ROCM-KERNEL-UNSUPPORTED",
        "warning",
        "warning",
    ),
    (
        kernel("debian-13", "6.19.13+deb13-amd64"),
        {"rocm_version": "7.2.3"},
        "ROCM-KERNEL-UNSUPPORTED",
        "error",
        "warning",
    ),
    (
        Machine(gpus=(MI325X_VF,), virtualization="kvm\n"),
        {"rocm_version": "7.1.0"},
        "ROCM-DRIVER-AVOID",
        "error",
        "warning",
    ),
    (Machine(), {"key_fingerprint": "9386B48A"}, "ROCM-KEY-REQUIRED", "error", "error"),
    (Machine(), {"repository_url": "https://x.example/\nTrusted: yes"}, "ROCM-URL", *BOTH),
    (Machine(), {"driver_repository_url": "x.example/amdgpu"}, "ROCM-URL", *BOTH),
    (Machine("rhel-9.6"), {"graphics_repository_url": "https://a b"}, "ROCM-URL", *BOTH),
    (Machine(), {"key_url": "/srv/a\nb"}, "ROCM-URL", *BOTH),
    (Machine(), {"driver_key_url": "ftp://x.example/key"}, "ROCM-URL", *BOTH),
    (Machine(), {"gfx_targets": ["gfx942", "gfx9 42;x"]}, "ROCM-GFX", *BOTH),
    (Machine(boot_mib=299), {}, "ROCM-BOOT-SPACE", "error", "error"),
    (Machine("rhel-9.6", listed=CRB), {}, "ROCM-EXTRA-REPOSITORY", "error", "error"),
    (Machine(secure_boot="SecureBoot enabled"), {}, "ROCM-SECURE-BOOT", "error", "error"),
    (Machine(replicas=REPLICA), {}, "ROCM-SERVING", "error", "error"),
    (
        Machine(packages={"rocm-core": "7.2.3.70203-80~24.04"}),
        {"rocm_version": "10.0.0"},
        "ROCM-STREAM",
        "error",
        "error",
    ),
    (
        Machine(packages={"amdrocm-base10.0": "10.0.0-4"}),
        {},
        "ROCM-STREAM",
        "error",
        "error",
    ),
]


@pytest.mark.parametrize(("machine", "settings", "code", "severity", "allowed"), SEVERITIES)
def test_a_fault_is_one_finding(machine, settings, code, severity, allowed):
    told = machine.plan(**settings).findings
    assert [(one.code, one.severity) for one in told] == [(code, severity)]
    assert "found" in told[0].message
    assert "expected" in told[0].message
    told = machine.plan(**settings, allow_unsupported=True).findings
    assert [(one.code, one.severity) for one in told] == ([(code, allowed)] if allowed else [])


@pytest.mark.parametrize(
    ("machine", "settings"),
    [
        (Machine(), {}),
        (Machine(gpus=(MI325X_VF,), virtualization="kvm\n"), {}),
        (Machine(gpus=(MI325X_VF,), virtualization="kvm\n"), {"rocm_version": "7.1.1"}),
        (Machine(), {"rocm_version": "7.1.0"}),
        (Machine(), {"driver_version": "30.20.1"}),
        (Machine(), {"rocm_version": "10.0.0", "driver_version": "30.30.4"}),
        (kernel("ubuntu-24.04", "6.17.0-23-generic"), {"driver": False}),
        (Machine(boot_mib=299).right(), {}),
        (Machine("rhel-9.6", listed=CRB, packages={"dkms": "3.0.13-1.el9"}), {}),
        (Machine("rhel-9.6", listed=""), {"extra_repositories": False}),
        (
            Machine(secure_boot="SecureBoot enabled\n", mok="MOK.der is already enrolled\n"),
            {},
        ),
        (Machine(secure_boot="SecureBoot enabled\n"), {"driver": False}),
        (replace(Machine().right(), replicas=REPLICA), {}),
        (Machine(replicas=REPLICA), {"driver": False}),
        (Machine(replicas=REPLICA.replace("active running", "inactive dead")), {}),
        (Machine(), {"key_url": "/srv/my keys/amd.gpg", "driver_key_url": "file:///srv/k"}),
        (Machine(), {"repository_url": "http://me:***@[::1]:80/rocm/", "key_url": "/srv/k"}),
        (Machine(), {"gfx_targets": ["gfx942", "gfx94x-dcgpu"]}),
        (Machine("rocky-9.6", gpus=("74a1",)), {}),
    ],
)
def test_what_is_right_is_not_spoken_of(machine, settings):
    assert machine.plan(**settings).findings == ()


@pytest.mark.parametrize(
    "system", ["fedora 43", "ubuntu 20.04", "rhel 8.10", "sles 15.7", "azurelinux 3.0"]
)
def test_a_system_without_repositories_is_refused_before_anything_else(system, monkeypatch):
    name, version = system.split()
    monkeypatch.setitem(SYSTEMS, system, (name, version, "6.8.0"))
    plan = Machine(system).plan(allow_unsupported=True)
    assert [(one.code, one.severity) for one in plan.findings] == [("ROCM-OS-UNSUPPORTED", "error")]
    # AMD does have packages for some of them.
    assert f"{version}, expected one whose repositories are known here" in plan.findings[0].message
    assert (plan.files, plan.packages, plan.checks) == ((), (), ())


@pytest.mark.parametrize(("release", "allowed"), [("9.5", True), ("9.7", False), ("9.12", True)])
def test_a_minor_release_needs_a_directory_of_the_driver(release, allowed, monkeypatch):
    monkeypatch.setitem(SYSTEMS, "rhel", ("rhel", release, "5.14.0-503.el9_5.x86_64"))
    codes = {one.code for one in Machine("rhel").plan().findings if one.severity == "error"}
    assert ("ROCM-EL-MINOR" in codes) is allowed


def test_evidence_without_a_system_is_refused():
    machine = Machine(files={"/etc/os-release": "NAME=none\n"})
    with pytest.raises(ApiaryError, match="HOST-NO-RELEASE"):
        machine.plan()


def test_a_release_in_no_matrix_goes_where_its_operator_answers_for_it():
    plan = Machine().plan(rocm_version="10.1.0", driver_version="31.60.0", allow_unsupported=True)
    assert plan.findings == ()
    assert "matrix" in {one.name for one in plan.skipped}
    assert [one.spec for one in plan.packages] == [
        "amdgpu-dkms=*.31600000-*",
        "amdgpu-dkms-firmware=*.31600000-*",
        "amdrocm-amdsmi10.1=10.1.0-*",
        "amdrocm-base10.1=10.1.0-*",
        "amdrocm-sysdeps10.1=10.1.0-*",
    ]


def test_packages_for_gpus_need_to_know_which():
    settings = {"rocm_version": "10.0.0", "profile": "native", "allow_unsupported": True}
    machine = Machine(gpus=("7fff",))
    assert "ROCM-GFX" in {one.code for one in machine.plan(**settings).findings}
    told = machine.plan(**settings, gfx_targets=["gfx942"]).findings
    assert "ROCM-GFX" not in {one.code for one in told}


def test_undoing_is_refused_beside_replicas_too():
    plan = replace(Machine().right(), replicas=REPLICA).plan(state="absent")
    assert [one.code for one in plan.findings] == ["ROCM-SERVING"]
