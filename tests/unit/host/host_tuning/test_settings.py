# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which settings a host gets: by profile, by name, by what it is."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import (
    catalogue,
    cmdline,
    observed,
)

from support.each import each
from support.host.tuning import applied, codes, gpu, host, tuned

KINDS = {
    "kernel_argument",
    "sysctl",
    "sysfs",
    "cpu",
    "limits",
    "modprobe",
    "bios_observable",
    "acs",
    "memory",
}
ALL = {one.id: one for one in catalogue.settings()}
LOWERING = sorted(name for name, one in ALL.items() if one.lowers_security)


def reasons(plan):
    return {one.name: one.reason for one in plan.skipped}


@each(ALL.values(), name=lambda setting: setting.id)
def test_every_setting_says_all_that_an_operator_asks(setting):
    assert setting.kind in KINDS
    assert setting.grade in ("required", "recommended", "optional", "community")
    assert setting.reason
    assert setting.not_when
    assert setting.check
    assert all(source.startswith("https://") for source in setting.sources)
    if setting.lowers_security:
        assert setting.profile == catalogue.BY_NAME
        assert setting.facts["lowers"]


@each(ALL.values(), name=lambda setting: setting.id)
def test_every_setting_is_applied_or_looked_at(setting):
    means = {"argument", "arguments", "sysctl", "sysfs", "cpu_state", "limits"}
    assert bool(means & set(setting.facts)) != (setting.id in observed.LOOKS)


def test_no_two_settings_decide_the_same_word():
    words = [
        word
        for one in ALL.values()
        for word in catalogue.Chosen(one, one.facts.get("value")).arguments
    ]
    for index, word in enumerate(words):
        assert cmdline.contradictions(words[index + 1 :], [word], []) == ()


def test_a_profile_holds_all_of_the_smaller_one():
    of = {name: set(tuned(profile=name).arguments) for name in catalogue.PROFILES}
    assert of["required"] < of["serving"] < of["full"]


def test_nothing_that_lowers_security_is_in_any_profile():
    arguments = tuned(profile="full").arguments
    assert not any(ALL[name].facts["argument"] in arguments for name in LOWERING)


@pytest.mark.parametrize("name", LOWERING)
def test_lowering_security_takes_its_own_word_and_is_told(name):
    refused = tuned(settings={name: True})
    assert codes(refused.findings, "error") == {"TUNE-INSECURE"}
    assert ALL[name].facts["argument"] not in refused.arguments
    asked = tuned(insecure=[name])
    assert codes(asked.findings) == {"TUNE-SECURITY-LOWERED"}
    assert ALL[name].facts["argument"] in asked.arguments


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ({"settings": {"iomu": False}}, "gpu-001: host_tuning_settings.iomu"),
        ({"insecure": ["iommu"]}, "gpu-001: host_tuning_insecure"),
        ({"insecure": ["nothing"]}, "gpu-001: host_tuning_insecure"),
    ],
)
def test_a_name_that_is_none_is_refused(settings, subject):
    (finding,) = tuned(**settings).findings
    assert (finding.code, finding.severity) == ("TUNE-UNKNOWN-SETTING", "error")
    assert finding.subject == subject


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transparent_hugepage", "sometimes"),
        ("swappiness", 201),
        ("swappiness", -1),
        ("max_map_count", 100),
        ("max_map_count", 9999999999),
        ("max_map_count", 2147483648),
        ("inotify_watches", 4294967296),
        ("iommu", "on"),
        ("numa_balancing", 2),
        ("governor", ["performance"]),
        ("governor", {"cpu0": "performance"}),
    ],
)
def test_a_value_that_cannot_be_is_refused(name, value):
    (finding,) = tuned(settings={name: value}).findings
    assert (finding.code, finding.severity) == ("TUNE-VALUE", "error")
    assert "expected" in finding.message


def test_another_value_is_taken_in_every_place():
    plan = tuned(settings={"numa_balancing": 1})
    assert "numa_balancing=enable" in plan.arguments
    (file,) = [one for one in plan.files if one.path.endswith("zz-apiary.conf")]
    assert "kernel.numa_balancing = 1" in file.content


def test_a_setting_of_the_wrong_kind_is_named():
    with pytest.raises(ApiaryError, match="profile: expected one of required, serving, full"):
        tuned(profile="fast")


def test_a_guest_gets_what_has_an_effect_there_and_is_told_the_rest():
    plan = tuned(host(virtualization="kvm"))
    assert plan.arguments == ("numa_balancing=disable",)
    why = reasons(plan)
    assert why["iommu"] == why["acs"] == why["nps"] == "the host is a virtual machine"
    assert "/proc/sys/kernel/numa_balancing" in [one.path for one in plan.live]


def test_what_the_host_is_taken_for_can_be_said():
    assert "iommu=pt" in tuned(host(virtualization="kvm"), platform="bare_metal").arguments
    assert "iommu=pt" not in tuned(platform="guest").arguments


@pytest.mark.parametrize(
    ("device", "has"),
    [("0x74a1", False), ("0x74a5", True), ("0x75a0", True), ("0x75a3", True)],
)
def test_bfsort_is_for_the_models_whose_check_has_it(device, has):
    assert ("pci=bfsort" in tuned(host(gpus=gpu(device))).arguments) == has


def test_a_host_whose_gpus_are_not_seen_yet_gets_what_lets_them_be_seen():
    assert {"pci=realloc=off", "pci=bfsort"} <= set(tuned(host(gpus={})).arguments)


@pytest.mark.parametrize(
    ("cpu", "gpus", "word"),
    [
        ("GenuineIntel", None, "intel_iommu=on"),
        ("AuthenticAMD", gpu("0x74a1"), "amd_iommu=on"),
    ],
)
def test_the_iommu_is_asked_for_as_its_maker_names_it(cpu, gpus, word):
    words = {"intel_iommu=on", "amd_iommu=on"} & set(tuned(host(cpu=cpu, gpus=gpus)).arguments)
    assert words == {word}


def test_an_unknown_cpu_gets_neither():
    plan = tuned(host(cpu="HygonGenuine", gpus=gpu("0x74a1")))
    assert not {"intel_iommu=on", "amd_iommu=on"} & set(plan.arguments)
    assert "lscpu" in reasons(plan)["intel_iommu"]


def test_names_of_nics_are_not_changed_under_replicas_that_serve():
    assert "pci=bfsort" not in tuned(host(serving=True)).arguments
    assert "pci=bfsort" in tuned(host(serving=True, cmdline="ro pci=bfsort")).arguments


def test_replicas_that_came_before_the_reboot_change_nothing():
    before = host()
    after = applied(before, tuned(before), replicas=host(serving=True).commands["replicas"])
    assert "pci=bfsort" in tuned(after).arguments


def test_names_that_may_change_are_told():
    links = {f"/sys/class/net/eth{n}": f"../../devices/pci0000:00/0000:0{n}:00.0" for n in (0, 1)}
    assert "TUNE-NIC-NAMES" in codes(tuned(host(links=links)).findings, "warning")
    told = host(links=links, cmdline="ro pci=bfsort")
    assert "TUNE-NIC-NAMES" not in codes(tuned(told).findings)


def test_kubernetes_nodes_get_what_the_device_plugin_needs():
    node = host(files={"/var/lib/kubelet/config.yaml": ""})
    assert "/proc/sys/fs/inotify/max_user_instances" in [one.path for one in tuned(node).live]
    assert reasons(tuned())["inotify_watches"] == "the host is no Kubernetes node"


def test_a_blacklisted_driver_is_loaded_by_a_unit_of_ours():
    plan = tuned(settings={"amdgpu_later": True})
    assert "modprobe.blacklist=amdgpu" in plan.arguments
    assert "apiary-amdgpu.service" in plan.units
    node = host(files={"/var/lib/kubelet/config.yaml": ""})
    assert "TUNE-BLACKLIST" in codes(tuned(node, settings={"amdgpu_later": True}).findings)


def test_a_tuned_that_runs_beside_ours_is_told_with_its_profile():
    profile = {"/etc/tuned/active_profile": "throughput-performance\n"}
    running = {"/run/tuned/tuned.pid": "812\n"}
    assert "TUNE-TUNED" not in codes(tuned(host(files=profile)).findings)
    assert "TUNE-TUNED" not in codes(tuned(host(files=running)).findings)
    (finding,) = tuned(host(files={**profile, **running})).findings
    assert (finding.code, finding.severity) == ("TUNE-TUNED", "warning")
    assert "TuneD with the profile throughput-performance" in finding.message
    assert "tuned-adm off" in finding.remedy


def test_lists_of_arguments_are_those_of_the_kernel():
    assert "pci" in knowledge("host/tuning.yml")["list_arguments"]["names"]
