# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real machines on their first days: mirrors, cloud kernels, releases side by side."""

from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import CommandOutput
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import rocm

from support.host.rocm import Machine, changes, problems

MIRROR = {
    "repository_url": "https://mirror.example/rocm",
    "driver_repository_url": "https://mirror.example/amdgpu",
}
KEY = "https://mirror.example/rocm/rocm.gpg.key"
ORACLE = "6.8.0-1021-oracle"


def test_a4_the_mirror_of_the_example_inventory_has_the_drivers_key_too():
    plan = Machine().plan(**MIRROR, key_url=KEY)
    assert {one.url for one in plan.keys} == {KEY}
    assert "ROCM-KEY-ELSEWHERE" not in problems(plan)


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        ({}, ["rocm_key_url", "rocm_driver_key_url"]),
        # The userland of the other stream has another key than the driver.
        ({"rocm_version": "10.0.0", "key_url": KEY}, ["rocm_driver_key_url"]),
        ({"driver_key_url": KEY}, ["rocm_key_url"]),
        ({"driver": False}, ["rocm_key_url"]),
    ],
)
def test_a4_a_mirror_whose_key_is_fetched_from_amd_is_reported(settings, variables):
    plan = Machine().plan(**MIRROR, **settings)
    found = [one for one in plan.findings if one.code == "ROCM-KEY-ELSEWHERE"]
    assert [(one.severity, one.message.split(" and no ")[1].split(",")[0]) for one in found] == [
        ("warning", variable) for variable in variables
    ]


@pytest.mark.parametrize(
    ("running", "installed", "held"),
    [
        (ORACLE, ("linux-oracle", "linux-image-oracle"), ("linux-image-oracle", "linux-oracle")),
        ("6.8.0-1015-azure", ("linux-azure", "linux-headers-azure"), None),
        ("6.8.0-1015-aws", ("linux-image-aws-lts-24.04", "linux-headers-aws-lts-24.04"), None),
        ("6.8.0-1015-gcp", ("linux-gcp-6.8", "linux-headers-gcp-6.8"), None),
        ("6.8.0-60-generic", ("linux-virtual", "linux-image-virtual"), None),
        ("6.8.0-60-generic", ("linux-image-generic", "linux-headers-generic"), None),
        ("7.0.0-10-generic", ("linux-generic-hwe-26.04",), None),
    ],
)
def test_a5_kernels_are_held_by_the_names_of_their_cloud(running, installed, held):
    machine = Machine(kernels=(running,), packages=dict.fromkeys(installed, "6.8.0.1021.24"))
    others = {"linux-firmware": "1", "linux-libc-dev": "1", "linux-tools-6.8.0-1021-oracle": "1"}
    machine.packages.update(others)
    plan = machine.plan(hold_kernel=True)
    kernels = [name for name in plan.hold if not name.startswith("amdgpu")]
    assert sorted(kernels) == sorted(held or installed)
    assert "ROCM-KERNEL-HOLD" not in problems(plan)


def test_a5_nothing_to_hold_is_reported():
    assert "ROCM-KERNEL-HOLD" in problems(Machine().plan(hold_kernel=True))
    assert "ROCM-KERNEL-HOLD" not in problems(Machine().plan())


@pytest.mark.parametrize(
    ("system", "installed", "offered"),
    [
        ("ubuntu-24.04", ("linux-image-oracle",), ["linux-headers-oracle"]),
        ("ubuntu-24.04", ("linux-image-oracle", "linux-oracle"), []),
        ("ubuntu-24.04", ("linux-image-virtual", "linux-headers-virtual"), []),
        ("ubuntu-24.04", ("linux-image-virtual-hwe-24.04",), ["linux-headers-virtual-hwe-24.04"]),
        ("debian-12", ("linux-image-cloud-amd64",), ["linux-headers-cloud-amd64"]),
        ("debian-12", ("linux-image-amd64", "linux-headers-amd64"), []),
    ],
)
def test_a5_the_next_kernel_comes_with_its_headers(system, installed, offered):
    machine = Machine(system, packages=dict.fromkeys(installed, "1"))
    headers = [
        name
        for one in machine.plan().optional
        for name in one.packages
        if name.startswith("linux-headers-")
    ]
    assert headers == offered
    for settings in ({}, {"hold_kernel": True}):
        done = machine.applied(machine.plan(**settings))
        assert changes(done.plan(**settings)) == {}
        if settings:
            assert {*installed, *offered} <= set(done.held)
            gone = done.applied(done.plan(state="absent", **settings))
            assert not set(gone.held)


def planned(machine, offered, **settings):
    """Plan for a machine whose package lists have these headers."""
    evidence = machine.evidence()
    text = "".join(f"{name} | 6.8.0 | https://archive.example noble\n" for name in offered)
    evidence.commands["apt_kernel_headers"] = CommandOutput(("sh",), 0, text, "", 0.0)
    return rocm.decide(rocm.Settings(**settings), evidence)


def test_a5_headers_that_no_repository_has_any_more_are_refused_before_anything_changes():
    machine = Machine(kernels=(ORACLE,), headers=(), packages={"linux-oracle": "1"})
    assert "ROCM-HEADERS-GONE" in problems(planned(machine, ["linux-headers-oracle"]))
    # Lists that have neither are not fetched yet.
    assert "ROCM-HEADERS-GONE" not in problems(planned(machine, []))
    there = [f"linux-headers-{ORACLE}", "linux-headers-oracle"]
    assert "ROCM-HEADERS-GONE" not in problems(planned(machine, there))
    built = Machine(kernels=(ORACLE,), packages={"linux-oracle": "1"})
    assert "ROCM-HEADERS-GONE" not in problems(planned(built, ["linux-headers-oracle"]))


def test_a5_the_newest_kernel_of_the_flavour_comes_once_where_that_is_allowed():
    offered = ["linux-headers-oracle", "linux-headers-generic", "linux-headers-oracle-6.14"]
    machine = Machine(kernels=(ORACLE,), headers=(), packages={"linux-image-oracle-6.14": "1"})
    plan = planned(machine, offered, update_kernel=True)
    assert plan.missing[:2] == ("linux-image-oracle-6.14", "linux-headers-oracle-6.14")
    assert f"linux-headers-{ORACLE}" not in plan.missing
    assert "ROCM-HEADERS-GONE" not in problems(plan)
    assert f"kernel {ORACLE} has no headers any more, the newest one boots" in plan.reboot
    first = next(one for one in plan.resources if one["kind"] == "transaction")["install"][0]
    assert first[:2] == list(plan.missing[:2])
    newer = "6.14.0-1003-oracle"
    packages = {"linux-image-oracle-6.14": "2", "linux-headers-oracle-6.14": "2"}
    both = Machine(kernels=(ORACLE, newer), headers=(newer,), packages=packages)
    again = planned(both, offered, update_kernel=True)
    assert not [name for name in again.missing if name.startswith("linux-")]
    assert again.reboot


def test_a5_an_installed_hwe_kernel_is_followed_by_one():
    running = "6.17.0-5-generic"
    machine = Machine(kernels=(running,), headers=(), packages={"linux-generic-hwe-24.04": "1"})
    offered = ["linux-headers-generic", "linux-headers-generic-hwe-24.04"]
    plan = planned(machine, offered, update_kernel=True)
    assert plan.missing[0] == "linux-image-generic-hwe-24.04"


def test_a9_releases_side_by_side_are_left_alone():
    machine = Machine().right()
    beside = {
        "rocm-core6.4.1": "6.4.1.60401-83~24.04",
        "rocm-hip-runtime6.4.1": "6.4.1.60401-83~24.04",
        "hsakmt-roct-dev": "20240607.5.7.60200-66~24.04",
    }
    machine.packages.update(beside)
    assert changes(machine.plan()) == {}
    assert not set(machine.plan(state="absent").remove) & set(beside)
    assert "ROCM-STREAM" not in problems(Machine(packages=beside).plan(rocm_version="10.0.0"))


def test_a9_packages_can_be_left_alone_by_name():
    machine = Machine().right()
    machine.packages["migraphx"] = "2.12.0.60400-47~24.04"
    assert "migraphx=*.70204-*" in machine.plan().missing
    assert changes(machine.plan(leave_packages=["migraph*"])) == {}


def test_a11_the_graphics_repository_is_one_that_exists():
    plan = Machine("rhel-9.6").plan(rocm_version="7.2.2", profile="full")
    texts = [one.content or "" for one in plan.files if "amdgraphics" in one.path]
    assert "https://repo.radeon.com/graphics/7.2.1/el/9.6/main/x86_64/" in texts[0]


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({"profile": "native"}, True),
        ({"profile": "full"}, True),
        ({}, False),
        ({"profile": "native", "rocm_version": "10.0.0"}, False),
    ],
)
def test_a11_the_linker_finds_the_libraries(settings, written):
    plan = Machine().plan(**settings)
    text = next(one.content for one in plan.files if one.path.startswith("/etc/ld.so.conf.d/"))
    assert ("/opt/rocm/lib\n/opt/rocm/lib64\n" in (text or "")) == written
    command = next(one for one in plan.resources if one.get("argv") == ["ldconfig"])
    assert command["after"] == ["file /etc/ld.so.conf.d/apiary-rocm.conf"]


@pytest.mark.parametrize(("name", "version"), [("almalinux", "9.6"), ("rocky", "10.0")])
def test_a11_rebuilds_of_rhel_are_a_choice_where_amd_lists_rhel(name, version):
    evidence = Machine("rhel-9.6").evidence()
    evidence.files["/etc/os-release"] = f'ID={name}\nVERSION_ID="{version}"\n'
    refused = rocm.decide(rocm.Settings(), evidence)
    assert "ROCM-OS-UNSUPPORTED" in problems(refused)
    plan = rocm.decide(rocm.Settings(allow_unsupported=True), evidence)
    assert [one for one in plan.findings if one.severity == "error"] == []
    assert plan.packages


def test_directories_of_dkms_without_a_source_go_before_an_upgrade():
    stale = "/var/lib/dkms/amdgpu/6.8.5-2041575.24.04"
    right = "/var/lib/dkms/amdgpu/6.16.13-2341068.24.04"
    evidence = Machine().evidence()
    listed = f"{stale}\n{right}\n{right}/source/dkms.conf\n/var/lib/dkms/amdgpu/1;reboot\n"
    evidence.commands["dkms_directories"] = CommandOutput(("find",), 0, listed, "", 0.0)
    plan = rocm.decide(rocm.Settings(), evidence)
    assert plan.repair == (("rm", "--recursive", "--force", "--one-file-system", stale),)


@pytest.mark.parametrize(
    ("release", "more"),
    [
        ("7.2.4", {"rocm-validation-suite", "rccl"}),
        ("10.0.0", {"amdrocm10-rvs"}),
        ("7.14.0", {"amdrocm7-rvs"}),
    ],
)
def test_burn_in_brings_what_the_streams_repository_has(release, more):
    names = [
        {
            package.name
            for package in Machine("ubuntu-24.04")
            .plan(rocm_version=release, burn_in=burn_in)
            .packages
        }
        for burn_in in (False, True)
    ]
    assert names[1] - names[0] == more


@pytest.mark.parametrize(
    ("system", "release", "file", "address"),
    [
        ("ubuntu-24.04", "10.0.0", "amdextras.sources", "extras/rvs/packages/ubuntu2404/"),
        ("rhel-9.6", "10.0.0", "apiary-amdextras.repo", "extras/rvs/packages/rhel9/x86_64/"),
        ("ubuntu-24.04", "7.14.0", "amdextras.sources", "rvs/packages/deb/"),
        ("rhel-9.6", "7.14.0", "apiary-amdextras.repo", "rvs/packages/rpm/x86_64/"),
    ],
)
def test_burn_in_of_the_current_stream_has_a_repository_of_its_own(system, release, file, address):
    def texts(**settings):
        plan = Machine(system).plan(rocm_version=release, **settings)
        return plan, {Path(one.path).name: one.content for one in plan.files}

    assert file not in texts()[1]
    plan, found = texts(burn_in=True)
    server = "https://stable.repo.amd.com" if release == "10.0.0" else "https://repo.amd.com"
    assert f"{server}/rocm/{address}\n" in found[file]
    # One key of AMD's for both.
    assert len({key.path for key in plan.keys if "rocm" in key.path}) == 1
    (rvs,) = [one for one in plan.packages if one.name.endswith("-rvs")]
    assert (rvs.version, rvs.spec) == (None, rvs.name)
    assert rvs.name in plan.missing
    if system == "ubuntu-24.04":
        # RVS asks for amdrocm-runtime, and the newest one is of another series.
        assert " amdrocm-*\n" in found["apiary-rocm"]
    mirror = texts(burn_in=True, extras_repository_url="https://m.example/rvs")[1]
    assert "https://m.example/rvs/" in mirror[file]
    gone = Machine(system).plan(rocm_version=release, state="absent").files
    assert file in {Path(one.path).name for one in gone}


@pytest.mark.parametrize(
    ("system", "path"),
    [
        ("ubuntu-24.04", "/etc/apt/sources.list.d/amdextras.sources"),
        ("rhel-9.6", "/etc/yum.repos.d/apiary-amdextras.repo"),
    ],
)
def test_burn_ins_repository_goes_when_it_is_left_off_again(system, path):
    machine = Machine(system, files={path: "URIs: https://m.example/rvs/\n"})
    for burn_in in (True, False):
        plan = machine.plan(rocm_version="10.0.0", burn_in=burn_in)
        (content,) = [one.content for one in plan.files if one.path == path]
        assert (content is not None) == burn_in


def test_rvs_of_any_version_is_installed_once():
    machine = Machine("ubuntu-24.04", packages={"amdrocm10-rvs": "1.6.131-844"})
    plan = machine.plan(rocm_version="10.0.0", burn_in=True)
    assert "amdrocm10-rvs" not in plan.missing
