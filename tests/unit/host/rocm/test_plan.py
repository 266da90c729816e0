# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans over systems, streams and profiles: what is done, that it is enough, that it ends."""

import itertools
import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from support.compact import compact
from support.each import each
from support.host.rocm import MI355X, SYSTEMS, Machine, changes, problems

RELEASES = ("6.4.3", "7.0.2", "7.1.1", "7.2.4", "7.14.1", "10.0.0")
PROFILES = ("serving", "native", "full")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_plan_of_a_fresh_host(system, golden):
    plans = {}
    for release, profile in (("7.2.4", "serving"), ("10.0.0", "native"), ("7.2.4", "full")):
        plan = json.loads(dumps(Machine(system).plan(rocm_version=release, profile=profile)))
        # Checks have tests of their own; on a fresh host nearly all of them fail.
        del plan["checks"], plan["resources"]
        plans[f"{release} {profile}"] = plan
    golden(f"rocm/{system}.json", compact(dumps(plans)))


@each(itertools.product(SYSTEMS, RELEASES, PROFILES))
def test_a_host_that_the_role_has_made_needs_nothing(system, release, profile):
    settings = {
        "rocm_version": release,
        "profile": profile,
        "allow_unsupported": True,
    }
    machine = Machine(system, kernels=(SYSTEMS[system][2], "4.4.0-1"), headers=())
    first = machine.plan(**settings)
    assert first.missing
    done = machine.applied(first)
    second = done.plan(**settings)
    assert changes(second) == {}
    assert len(second.reboot) == 1
    third = done.rebooted().plan(**settings)
    assert changes(third) == {}
    assert third.reboot == third.after_reboot == ()
    assert [one for one in third.checks if one.state != "pass"] == []


def test_only_a_reboot_mends_what_is_named_as_such():
    machine = Machine()
    done = machine.applied(machine.plan())
    plan = done.plan()
    failing = {one.code for one in plan.checks if one.state == "fail"}
    assert failing == set(plan.after_reboot)


def test_a_release_is_two_kinds_of_names():
    legacy, current = (
        [one.name for one in Machine().plan(rocm_version=release, profile="native").packages]
        for release in ("7.2.4", "7.14.1")
    )
    assert "rocm-smi-lib" in legacy
    assert "amdrocm7.14-gfx942" in current
    assert not [name for name in current if "smi-lib" in name]


def test_each_gpu_target_has_its_packages():
    machine = Machine(gpus=(MI355X, "74a5"))
    names = [one.name for one in machine.plan(rocm_version="10.0.0", profile="native").packages]
    assert names[-2:] == ["amdrocm10.0-gfx942", "amdrocm10.0-gfx950"]


def test_asked_targets_come_before_those_on_the_bus():
    plan = Machine().plan(rocm_version="10.0.0", profile="native", gfx_targets=["gfx950"])
    assert plan.packages[-1].name == "amdrocm10.0-gfx950"


def test_serving_leaves_libraries_to_the_containers():
    names = {one.name for one in Machine().plan().packages}
    assert names == {
        "amdgpu-dkms",
        "amdgpu-dkms-firmware",
        "amd-smi-lib",
        "rocm-core",
        "rocm-smi-lib",
        "rocminfo",
    }


def test_without_driver_nothing_of_the_kernel_is_touched():
    plan = Machine(headers=()).plan(driver=False)
    assert plan.dkms == plan.reboot == plan.hold == plan.disruptive == ()
    assert plan.initramfs is None
    assert not [name for name in plan.missing if "headers" in name or "amdgpu" in name]
    assert [one.path for one in plan.files if one.path.endswith(".sources")] == [
        "/etc/apt/sources.list.d/rocm.sources"
    ]


def test_a_later_release_takes_along_what_else_is_installed():
    machine = Machine().right(rocm_version="7.2.3", profile="native")
    machine.packages["rocfft"] = "1.0.36.70203-80~24.04"
    plan = machine.plan(rocm_version="7.2.4", profile="native")
    assert "rocfft=*.70204-*" in plan.missing
    assert "amdgpu-dkms=1:6.16.13.30300400-*" in plan.missing
    assert set(plan.unhold) == set(plan.hold) == {"amdgpu-dkms", "amdgpu-dkms-firmware"}
    assert changes(machine.applied(plan).plan(rocm_version="7.2.4", profile="native")) == {}


def test_the_same_module_version_of_another_release_needs_a_reboot():
    machine = Machine().right(rocm_version="7.2.3")
    machine = machine.applied(machine.plan(rocm_version="7.2.4"))
    machine.loaded["version"] = "6.16.13"
    machine.loaded["srcversion"] = "SRC of 30.30.3"
    plan = machine.plan(rocm_version="7.2.4")
    assert plan.reboot == (
        "another build of driver 6.16.13 loaded (srcversion SRC of 30.30.3), 6.16.13 is installed",
    )


def test_a_blacklisted_driver_is_no_reason_to_reboot():
    machine = Machine(cmdline="ro modprobe.blacklist=amdgpu")
    plan = machine.applied(machine.plan()).plan()
    assert plan.reboot == ()
    assert "ROCM-BLACKLISTED" in problems(plan)
    # Nor does it end the run: what loads it is written by the next role.
    failing = {one.code for one in plan.checks if (one.state, one.severity) == ("fail", "error")}
    assert failing == set(plan.after_reboot) == {"ROCM-DRIVER-LOADED", "ROCM-DEVICES"}
    assert machine.plan(driver=False).after_reboot == ()


def test_absent_takes_everything_away_and_then_nothing():
    machine = Machine().right()
    plan = machine.plan(state="absent")
    assert set(plan.remove) == {
        name for name in machine.packages if not name.startswith(("python3-", "linux-"))
    }
    assert set(plan.unhold) == {"amdgpu-dkms", "amdgpu-dkms-firmware"}
    assert plan.keys == ()
    assert plan.reboot == ("the driver is removed while it is loaded",)
    gone = machine.applied(plan)
    assert gone.files == {}
    after = gone.rebooted().plan(state="absent")
    assert changes(after) == {}
    assert after.reboot == ()
    assert problems(after) == []


def test_removing_what_is_not_loaded_needs_no_reboot():
    machine = Machine()
    machine = machine.applied(machine.plan())
    assert machine.plan(state="absent").remove
    assert machine.plan(state="absent").reboot == ()
    assert replace(machine, loaded={"srcversion": "INBOX"}).plan(state="absent").reboot == ()


def test_a_driver_is_built_whatever_the_userland_lacks():
    machine = replace(Machine().right(), builds={})
    del machine.packages["rocminfo"]
    plan = machine.plan()
    assert plan.dkms == (
        ("dkms", "install", "amdgpu/6.16.13-2341068.24.04", "-k", machine.running),
    )
    # It is loaded at the next boot, so replicas may go on.
    assert plan.disruptive == ()


def test_each_package_is_removed_once():
    machine = Machine(packages={"amdrocm-repo": "10.0.0", "amdrocm-base10.0": "10.0.0-4"})
    assert machine.plan(remove_legacy=True).remove == ("amdrocm-repo", "amdrocm-base10.0")


def test_undoing_repairs_nothing_that_is_not_ours():
    machine = Machine(packages={"dkms": "3.0.11"}, broken=("dkms",))
    assert machine.plan(state="absent").repair == ()
    assert machine.plan().repair == (("dpkg", "--configure", "-a"),)


def test_other_stream_is_removed_first_where_that_is_allowed():
    machine = Machine().right(profile="native")
    assert machine.plan().disruptive == ()
    refused = machine.plan(rocm_version="10.0.0")
    assert [one.code for one in refused.findings] == ["ROCM-STREAM"]
    plan = machine.plan(rocm_version="10.0.0", remove_legacy=True)
    assert plan.findings == ()
    assert {"rccl", "rocm-core", "rocminfo"} <= set(plan.remove)
    assert "amdgpu-dkms" not in plan.remove
    assert "rccl is removed" in plan.disruptive
    assert not [name for name in machine.applied(plan).packages if name.startswith("roc")]


def test_amds_installer_goes_with_its_files():
    amd, lists = "deb https://repo.radeon.com/", "/etc/apt/sources.list.d/"
    files = {
        f"{lists}amdgpu.list": f"{amd}amdgpu/6.3/ubuntu noble main\n",
        "/etc/apt/preferences.d/repo-radeon-pin-600": "Package: *\n",
        f"{lists}mine.list": f"{amd}rocm/apt/6.3 noble main\n",
        f"{lists}toolkit.list": f"{amd}amd-container-toolkit/apt noble main\n",
        f"{lists}both.list": f"{amd}rocm/apt/6.3 noble main\ndeb https://a.example/u noble main\n",
        "/etc/apt/sources.list": f"{amd}rocm/apt/6.3 noble main\n",
        f"{lists}mine.list.save": f"{amd}rocm/apt/6.3 noble main\n",
        f"{lists}off.list": f"# {amd}rocm/apt/6.3 noble main\n",
    }
    plan = Machine(files=files, packages={"amdgpu-install": "6.3.60300-1"}).plan()
    assert plan.remove == ("amdgpu-install",)
    assert Machine(packages={"amdgpu-install": "6.3.60300-1"}).right().plan().disruptive == ()
    gone = [one.path for one in plan.files if one.content is None]
    ours = {"/etc/ld.so.conf.d/apiary-rocm.conf"}
    assert set(gone) - ours == {
        "/etc/apt/sources.list.d/amdgpu.list",
        "/etc/apt/preferences.d/repo-radeon-pin-600",
        "/etc/apt/sources.list.d/mine.list",
    }


def test_mirrors_keep_amds_paths_below_them():
    plan = Machine("rhel-9.6").plan(
        repository_url="https://mirror.example/rocm/",
        driver_repository_url="https://mirror.example/amdgpu",
        key_url="https://mirror.example/key",
        key_fingerprint="aaaa bbbb cccc dddd eeee  ffff 0000 1111 2222 3333",
        driver_key_url="file:///srv/driver.key",
    )
    addresses = [
        line for one in plan.files for line in (one.content or "").splitlines() if "baseurl" in line
    ]
    assert addresses == [
        "baseurl=https://mirror.example/amdgpu/30.30.4/el/9.6/main/x86_64/",
        "baseurl=https://mirror.example/rocm/el9/7.2.4/main",
    ]
    assert [(key.url, key.fingerprint[:8]) for key in plan.keys] == [
        ("file:///srv/driver.key", "CA8BB472"),
        ("https://mirror.example/key", "AAAABBBB"),
    ]


def test_a_hold_on_what_has_to_change_is_lifted():
    machine = Machine(headers=(), held=("linux-headers-6.8.0-101-generic", "linux-generic"))
    plan = machine.plan()
    assert plan.unhold == ("linux-headers-6.8.0-101-generic",)


def test_kernels_are_held_where_asked_for():
    machine = Machine(packages={"linux-generic": "6.8.0-101.101"})
    assert machine.plan(hold_kernel=True).hold[2:] == ("linux-generic",)
    assert "linux-generic" not in machine.plan().hold


@pytest.mark.parametrize(
    ("system", "commands"),
    [
        (
            "rocky-9.6",
            (
                ("dnf", "config-manager", "--enable", "crb"),
                ("dnf", "install", "-y", "epel-release"),
            ),
        ),
        (
            "ol-9.6",
            (
                ("dnf", "config-manager", "--enable", "ol9_codeready_builder"),
                ("dnf", "install", "-y", "oracle-epel-release-el9"),
            ),
        ),
        ("ubuntu-24.04", ()),
    ],
)
def test_other_repositories_are_enabled_where_they_are_not(system, commands):
    assert Machine(system, listed="").plan().enable == commands
    assert Machine(system).plan().enable == ()
    assert Machine(system, listed="").plan(extra_repositories=False).enable == ()


@pytest.mark.parametrize(
    ("system", "kernel", "names"),
    [
        ("ubuntu-24.04", "6.8.0-1021-azure", ["linux-headers-{}"]),
        ("debian-13", "6.12.57+deb13-amd64", ["linux-headers-{}"]),
        ("rhel-9.6", "5.14.0-570.el9_6.x86_64", ["kernel-devel-{}", "kernel-devel-matched-{}"]),
        ("ol-9.6", "6.12.0-1.23.3.2.el9uek.x86_64", ["kernel-uek-devel-{}"]),
        ("ol-9.6", "5.14.0-570.el9_6.x86_64", ["kernel-devel-{}"]),
    ],
)
def test_headers_come_as_the_system_calls_them(system, kernel, names):
    plan = Machine(system, kernels=(kernel,), headers=()).plan(allow_unsupported=True)
    assert [name for name in plan.prerequisites if name != "kernel-headers"][: len(names)] == [
        name.format(kernel) for name in names
    ]
    brought = Machine(system, kernels=(kernel,)).plan(allow_unsupported=True)
    assert not [name for name in brought.prerequisites if kernel in name or "devel" in name]


def test_headers_must_be_had_for_the_kernels_that_run_and_boot_next():
    kernels = ("6.8.0-101-generic", "6.8.0-110-generic", "6.8.0-99-generic")
    machine = Machine(kernels=kernels, headers=())
    plan = machine.plan()
    assert [name for name in plan.missing if "headers" in name] == [
        "linux-headers-6.8.0-110-generic",
        "linux-headers-6.8.0-101-generic",
    ]
    (offer,) = (one for one in plan.optional if one.initramfs)
    assert (offer.kernel, offer.packages) == (kernels[2], (f"linux-headers-{kernels[2]}",))
    # Before the driver is there, its package builds it.
    assert offer.dkms == ()


def test_a_driver_is_built_for_an_older_kernel_whose_headers_can_be_had():
    older = "6.8.0-99-generic"
    done = Machine().right()
    machine = replace(done, kernels=(done.running, older), headers=(done.running,))
    plan = machine.plan()
    assert plan.dkms == plan.missing == ()
    assert plan.initramfs is None
    assert [(one.packages, one.dkms) for one in plan.optional] == [
        (
            (f"linux-headers-{older}",),
            (("dkms", "install", "amdgpu/6.16.13-2341068.24.04", "-k", older),),
        ),
        ((f"linux-modules-extra-{older}",), ()),
    ]


@pytest.mark.parametrize("system", ["ubuntu-24.04", "debian-13"])
@pytest.mark.parametrize("packaged", [True, False])
@pytest.mark.parametrize("headers", [None, ()])
def test_other_modules_come_with_kernels_of_the_distribution(system, packaged, headers):
    machine = Machine(system, packaged=packaged, headers=headers)
    wanted = (f"linux-modules-extra-{machine.running}",) if packaged and "ubuntu" in system else ()
    plan = machine.plan()
    assert sum((one.packages for one in plan.optional), ()) == wanted
    assert bool(wanted) is ("ROCM-KERNEL-MODULES" in problems(plan))


def test_a_copy_of_a_kernels_image_is_no_kernel():
    plan = Machine(images=("6.8.0-200-generic.bak",)).plan()
    assert not [name for name in plan.missing if "bak" in name]


def test_rpm_cannot_take_our_files_along_with_amds_installer():
    folder = "/etc/yum.repos.d"
    left = {f"{folder}/{name}.repo": "[x]\n" for name in ("amdgpu", "rocm", "mine")}
    plan = Machine("rhel-9.6", files=left, packages={"amdgpu-install": "6.4.60403-1"}).plan()
    assert plan.remove == ("amdgpu-install",)
    files = {one.path: one.content is not None for one in plan.files if folder in one.path}
    assert files == {
        f"{folder}/apiary-amdgpu.repo": True,
        f"{folder}/apiary-rocm.repo": True,
        f"{folder}/amdgpu.repo": False,
        f"{folder}/rocm.repo": False,
    }


@pytest.mark.parametrize(
    ("release", "profile", "wanted"),
    [
        ("6.4.3", "full", False),
        ("7.0.2", "full", True),
        ("7.2.4", "native", False),
        ("10.0.0", "full", False),
    ],
)
def test_graphics_come_with_everything_of_rocm_7(release, profile, wanted):
    plan = Machine("rhel-9.6").plan(
        rocm_version=release, profile=profile, graphics_repository_url="https://m.example/g"
    )
    found = [one.content for one in plan.files if one.path.endswith("amdgraphics.repo")]
    assert bool(found) is wanted
    assert all(f"baseurl=https://m.example/g/{release}/el/9.6/main/x86_64/" in one for one in found)
