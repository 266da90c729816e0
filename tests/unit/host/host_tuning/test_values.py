# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the running kernel and of every boot: sysctl, /sys, limits; and their drift."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import sysctl

from support.host.tuning import (
    applied,
    codes,
    failing,
    file_of,
    grub_cfg,
    host,
    idle_states,
    services,
    tuned,
)

OURS = "/etc/sysctl.d/zz-apiary.conf"
UNIT = "/etc/systemd/system/apiary-host-tuning.service"
BALANCING = "/proc/sys/kernel/numa_balancing"
WORDS = (
    "iommu=pt pci=realloc=off pci=bfsort numa_balancing=disable processor.max_cstate=0 "
    "pcie_aspm=off"
)
GOVERNORS = {
    f"/sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "schedutil\n" for n in (0, 1, 10)
} | {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors": "performance schedutil\n"}


def right_host(**extra):
    """A host with everything, tuned and rebooted: no check fails."""
    before = host(
        files={**GOVERNORS, **idle_states("POLL", "C1", "C2")},
        cmdline=f"ro {WORDS}",
        service_limits=services(
            containerd={"LimitMEMLOCK": "infinity", "LimitNOFILE": "1048576", "LimitCORE": "0"}
        ),
        **extra,
    )
    return applied(before, tuned(before), boot_entries=grub_cfg(WORDS))


def drifted(files=(), **commands):
    """The right host after somebody changed it; a file that is None is gone."""
    right = right_host()
    merged = {**right.files, **dict(files)}
    return dataclasses.replace(
        right,
        files={path: text for path, text in merged.items() if text is not None},
        commands={**right.commands, **commands},
    )


def test_a_right_host_passes_every_check():
    plan = tuned(right_host())
    assert failing(plan) == set()
    assert codes(plan.findings) == set()
    assert plan.reboot == ()
    assert {one.state for one in plan.checks} == {"pass"}


DRIFTS = {
    "another file has the last word": (
        {"/etc/sysctl.d/zzz.conf": "-kernel/numa_balancing=1\n"},
        {},
        {("TUNE-SYSCTL-OVERRIDDEN", "kernel.numa_balancing")},
    ),
    "sysctl.conf would put it back": (
        {"/etc/sysctl.conf": "kernel.numa_* = 1\n"},
        {},
        {("TUNE-SYSCTL-OVERRIDDEN", "kernel.numa_balancing")},
    ),
    "the running kernel lacks a word": (
        {"/proc/cmdline": f"ro {WORDS.replace('iommu=pt', '')}\n"},
        {},
        {("TUNE-ARGUMENT", "iommu=pt")},
    ),
    "the running kernel was told the contrary": (
        {"/proc/cmdline": f"ro {WORDS} iommu=off\n"},
        {},
        {("TUNE-ARGUMENT", "iommu=pt")},
    ),
    "the next kernel lacks a word": (
        {},
        {"boot_entries": grub_cfg("quiet")},
        {("TUNE-NEXT-BOOT", "boot loader")},
    ),
    "a service lost its limits": (
        {},
        {
            "service_limits": services(
                containerd={"LimitMEMLOCK": "8388608", "LimitNOFILE": "1048576"}
            )
        },
        {("TUNE-LIMIT", "containerd.service: LimitMEMLOCK")},
    ),
}


@pytest.mark.parametrize(("files", "commands", "expected"), DRIFTS.values(), ids=DRIFTS)
def test_a_drift_is_named_with_its_remedy(files, commands, expected):
    plan = tuned(drifted(files, **commands))
    assert failing(plan) == expected
    assert all(one.remedy for one in plan.checks if one.state == "fail")


def test_our_file_has_the_last_word_over_numbered_ones():
    before = host(files={"/etc/sysctl.d/99-local.conf": "kernel.numa_balancing = 1\n"})
    told = {code for code, _subject in failing(tuned(before))}
    assert "TUNE-SYSCTL-OVERRIDDEN" not in told


@pytest.mark.parametrize("path", ["/etc/sysctl.d/zzz.conf", "/etc/sysctl.conf"])
def test_a_later_file_is_found_before_ours_is_written(path):
    before = host(files={path: "kernel.numa_balancing = 1\n"})
    assert ("TUNE-SYSCTL-OVERRIDDEN", "kernel.numa_balancing") in failing(tuned(before))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b = 1", [("a.b", "1")]),
        ("  -a/b=1 2\t3 ", [("a.b", "1 2 3")]),
        ("# a.b = 1\n; c.d = 2\n\ne.f=", [("e.f", "")]),
        ("-a.b", []),
        ("a.b\n= 1", []),
    ],
)
def test_lines_of_sysctl_files(text, expected):
    assert list(sysctl.assignments(text)) == expected


def test_files_are_ordered_by_name_and_hidden_by_earlier_directories():
    files = {
        "/usr/lib/sysctl.d/50-a.conf": "",
        "/etc/sysctl.d/50-a.conf": "",
        "/run/sysctl.d/10-b.conf": "",
        "/etc/sysctl.d/README": "",
        "/etc/sysctl.conf": "",
    }
    assert sysctl.in_order(files) == [
        "/run/sysctl.d/10-b.conf",
        "/etc/sysctl.d/50-a.conf",
        "/etc/sysctl.conf",
    ]


@pytest.mark.parametrize(
    ("file", "now", "written", "set_now"),
    [
        (None, "65530", True, True),
        (None, "2000000", True, False),
        ("262144", "262144", True, True),
        ("2000000", "2000000", False, False),
        ("2000000", "65530", False, True),
    ],
)
def test_more_than_is_needed_is_not_lowered(file, now, written, set_now):
    files = {"/proc/sys/vm/max_map_count": now + "\n"}
    if file:
        files["/usr/lib/sysctl.d/10-map-count.conf"] = f"vm.max_map_count={file}\n"
    plan = tuned(host(files=files))
    assert ("vm.max_map_count = 1048576" in file_of(plan, OURS)) == written
    assert ("/proc/sys/vm/max_map_count" in [one.path for one in plan.live]) == set_now


def test_a_kernel_without_a_setting_is_no_failure():
    plan = tuned(host(gone=[BALANCING]))
    assert ("numa_balancing", "the kernel has no kernel.numa_balancing") in [
        (one.name, one.reason) for one in plan.skipped
    ]
    assert BALANCING not in [one.path for one in plan.live]
    assert "numa_balancing" not in file_of(plan, OURS)


def test_c2_is_found_by_name_not_by_number():
    other = idle_states("POLL", "C1", "C1E", "C2")
    paths = [one.path for one in tuned(host(files=other)).live]
    assert [path for path in paths if "cpuidle" in path] == [
        "/sys/devices/system/cpu/cpu0/cpuidle/state3/disable",
        "/sys/devices/system/cpu/cpu1/cpuidle/state3/disable",
    ]


@pytest.mark.parametrize(
    ("files", "name", "reason"),
    [
        (idle_states("POLL", "C1"), "c2", "no CPU state named C2"),
        ({}, "governor", "the kernel shows no"),
        (
            {path: text.replace("performance ", "") for path, text in GOVERNORS.items()},
            "governor",
            "performance is none of schedutil",
        ),
    ],
)
def test_what_the_kernel_does_not_have_is_skipped_and_told(files, name, reason):
    plan = tuned(host(files=files))
    (told,) = [one.reason for one in plan.skipped if one.name == name]
    assert told.startswith(reason)


def test_a_host_without_anything_in_sys_gets_no_unit():
    plan = tuned()
    assert file_of(plan, UNIT) is None
    assert plan.units == ()


def test_what_the_kernel_lacks_since_it_was_booted_otherwise_stays_in_the_unit():
    right = right_host()
    gone = [path for path in right.files if "cpuidle" in path]
    after = drifted(dict.fromkeys(gone))
    assert file_of(tuned(after), UNIT) == right.files[UNIT]
    assert failing(tuned(after)) == set()


def test_a_unit_that_is_no_longer_wanted_is_disabled():
    plan = tuned(right_host(), settings={"c2": False, "governor": False})
    assert plan.gone_units == ("apiary-host-tuning.service",)
    assert file_of(plan, UNIT) is None


def test_a_container_leaves_alone_what_is_its_machines():
    plan = tuned(host(virtualization="docker"), profile="full")
    assert "transparent_hugepage" in {one.name for one in plan.skipped}
    assert not [one for one in plan.live if "hugepage" in one.path]


def test_huge_pages_are_set_now_and_for_the_next_boot():
    plan = tuned(settings={"transparent_hugepage": "madvise"})
    assert "madvise" in [one.value for one in plan.live if "hugepage" in one.path]
    assert "transparent_hugepage=madvise" in plan.arguments


def test_limits_are_for_services_that_are_installed():
    limits = {"LimitMEMLOCK": "8388608", "LimitNOFILE": "524288", "LimitCORE": "infinity"}
    plan = tuned(host(service_limits=services(docker=limits, gpuagent=limits, containerd=None)))
    assert "LimitMEMLOCK=infinity\nLimitNOFILE=1048576\n" in file_of(
        plan, "/etc/systemd/system/docker.service.d/apiary.conf"
    )
    assert "LimitCORE=0\n" in file_of(plan, "/etc/systemd/system/gpuagent.service.d/apiary.conf")
    assert file_of(plan, "/etc/systemd/system/containerd.service.d/apiary.conf") is None


def test_a11_jobs_and_who_logs_in_may_pin_memory():
    limits = {"LimitMEMLOCK": "8388608", "LimitNOFILE": "524288"}
    machine = host(service_limits=services(slurmd=limits, ssh=limits))
    slurm, login = (f"/etc/systemd/system/{one}.service.d/apiary.conf" for one in ("slurmd", "ssh"))
    assert "LimitMEMLOCK=infinity" in file_of(tuned(machine), slurm)
    assert file_of(tuned(machine), login) is None
    asked = tuned(machine, settings={"login_limits": True})
    assert file_of(asked, login).endswith("[Service]\nLimitMEMLOCK=infinity\n")


@pytest.mark.parametrize("files", ["infinity", "2097152"])
def test_a_limit_is_never_lowered(files):
    path = "/etc/systemd/system/docker.service.d/apiary.conf"
    limits = {"LimitMEMLOCK": "8388608", "LimitNOFILE": files, "LimitCORE": "infinity"}
    plan = tuned(host(service_limits=services(docker=limits)))
    assert file_of(plan, path).endswith("[Service]\nLimitMEMLOCK=infinity\n")
    assert ("TUNE-LIMIT", "docker.service: LimitNOFILE") not in failing(plan)


def test_a_limit_that_ours_set_stays_ours():
    path = "/etc/systemd/system/docker.service.d/apiary.conf"
    limits = {"LimitMEMLOCK": "infinity", "LimitNOFILE": "1048576"}
    plan = tuned(host(service_limits=services(docker=limits)))
    assert "LimitMEMLOCK=infinity\nLimitNOFILE=1048576\n" in file_of(plan, path)


def test_a_core_dump_is_still_forbidden():
    plan = tuned(host(service_limits=services(gpuagent={"LimitCORE": "infinity"})))
    assert ("TUNE-LIMIT", "gpuagent.service: LimitCORE") in failing(plan)


def test_gpus_are_there_before_they_are_named():
    plan = tuned(settings={"amdgpu_later": True})
    unit = file_of(plan, "/etc/systemd/system/apiary-amdgpu.service")
    assert "\nBefore=apiary-cdi.service\n" in unit


def test_the_undo_leaves_no_file_of_ours():
    plan = tuned(right_host(), state="absent")
    assert {one.content for one in plan.files} == {None}
    assert {one.path for one in plan.files} >= {
        OURS,
        UNIT,
        "/etc/systemd/system/containerd.service.d/apiary.conf",
    }
    assert plan.gone_units == ("apiary-host-tuning.service",)
    assert plan.reboot == ()


def test_the_unit_as_it_is_written(golden):
    golden("host/apiary-host-tuning.service", file_of(tuned(right_host(), profile="full"), UNIT))
