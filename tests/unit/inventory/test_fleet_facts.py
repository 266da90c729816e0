# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host shares with its peers, read of evidence."""

import copy
import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.facts import facts_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import HostFacts
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from tests.support.printers import machine as printers
from tests.support.printers.machine import command

BUS = "/sys/bus/pci/devices"
RELEASE = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'
HOST_FILES = {
    "/etc/os-release": RELEASE,
    "/opt/rocm/.info/version": "7.2.4-93\n",
    "/proc/sys/kernel/osrelease": "6.8.0-90-generic\n",
    "/sys/class/dmi/id/bios_version": "2.4\n",
    "/sys/class/dmi/id/bios_date": "05/13/2025\n",
    "/sys/module/amdgpu/initstate": "live\n",
    "/sys/module/amdgpu/version": "6.16.6\n",
}


def facts(bundle) -> HostFacts:
    return facts_of(from_document(Evidence, bundle, "test"), from_evidence(bundle))


@pytest.fixture
def bundle():
    machine = printers.mesh()
    made = copy.deepcopy(printers.bundle(machine))
    made["files"] |= HOST_FILES
    for card in machine.cards:
        base = f"{BUS}/{card.bdf}"
        made["files"] |= {
            f"{base}/vbios_version": "113-M3250101-100\n",
            f"{base}/fw_version/smc_fw_version": "0x00557200\n",
            f"{base}/fw_version/vce_fw_version": "0x00000000\n",
            f"{base}/current_compute_partition": "SPX\n",
            f"{base}/current_memory_partition": "NPS1\n",
        }
    return made


def test_everything_that_a_host_tells(bundle):
    assert facts(bundle) == HostFacts(
        gpu_model="MI325X",
        gpus=8,
        vram_bytes=8 * printers.mesh().cards[0].vram,
        hives=(8,),
        numa_nodes=2,
        partitions="SPX/NPS1",
        driver="6.16.6",
        rocm="7.2.4",
        kernel="6.8.0-90-generic",
        os="ubuntu 24.04",
        bios="2.4 (05/13/2025)",
        firmware=(("smc", "0x00557200"), ("vbios", "113-M3250101-100")),
        health="healthy",
    )


def test_a_host_that_tells_nothing():
    empty = Evidence("gpu-001", "2026-11-22T00:00:00Z", "2")
    document = {**dataclasses.asdict(empty), "schema": Evidence.SCHEMA}
    assert facts(document) == HostFacts()


def test_firmware_that_differs_inside_a_host_is_told_of_each(bundle):
    bundle["files"][f"{BUS}/0000:85:00.0/fw_version/smc_fw_version"] = "0x00557100\n"
    assert facts(bundle).firmware[:2] == (("smc", "0x00557100"), ("smc", "0x00557200"))


def test_partition_modes_that_differ_inside_a_host_are_told_of_each(bundle):
    bundle["files"][f"{BUS}/0000:85:00.0/current_memory_partition"] = "NPS4\n"
    assert facts(bundle).partitions == "SPX/NPS1+SPX/NPS4"


def test_two_hives_are_sizes_largest_first():
    def wire(a, b):
        together = (a.rank < 5) == (b.rank < 5)
        return printers.Wire() if together else printers.Wire("PCIE", 40, 2, (0, 0))

    machine = dataclasses.replace(printers.mesh(), wire=wire)
    assert facts(printers.bundle(machine)).hives == (5, 3)


def test_gpus_on_pcie_alone_are_no_hive():
    machine = dataclasses.replace(
        printers.mesh(), wire=lambda a, b: printers.Wire("PCIE", 40, 2, (0, 0))
    )
    assert facts(printers.bundle(machine)).hives == ()


def test_partitions_are_counted_and_a_hive_is_of_devices():
    machine = printers.mesh()
    found = facts(printers.partitioned(printers.bundle(machine, amd_smi=False), machine, 8))
    assert (found.gpus, found.hives) == (64, (8,))


def test_the_driver_of_the_kernel_has_no_version(bundle):
    del bundle["files"]["/sys/module/amdgpu/version"]
    assert facts(bundle).driver == "in-box"


def test_without_sysfs_the_tools_tell_the_driver(bundle):
    for name in ("version", "initstate"):
        del bundle["files"][f"/sys/module/amdgpu/{name}"]
    assert facts(bundle).driver == "6.10.5"
    bundle["commands"]["rocm_smi_identity"]["stdout"] = "cut {"
    assert facts(bundle).driver is None


@pytest.mark.parametrize(
    ("commands", "rocm"),
    [
        ({}, None),
        ({"amd_smi_version": "AMDSMI Tool: 26.2 | ROCm version: 7.2.1\n"}, "7.2.1"),
        ({"dpkg_packages": "ii \trocm-core\t7.2.4.70204-93~24.04\n"}, "7.2.4"),
        ({"dpkg_packages": "rc \trocm-core\t6.4.1.60401-83~24.04\n"}, None),
        ({"rpm_packages": "ii\trocm-core\t7.2.4.70204-93.el9\n"}, "7.2.4"),
    ],
)
def test_rocm_is_told_by_packages_and_tools_too(bundle, commands, rocm):
    del bundle["files"]["/opt/rocm/.info/version"]
    bundle["commands"] = {name: command(text, name) for name, text in commands.items()}
    assert facts(bundle).rocm == rocm


def test_the_kernel_is_told_by_uname_too(bundle):
    del bundle["files"]["/proc/sys/kernel/osrelease"]
    bundle["commands"]["uname"] = command("Linux 6.8.0-31-generic #31-Ubuntu SMP x86_64\n", "uname")
    assert facts(bundle).kernel == "6.8.0-31-generic"


class TestHealth:
    def test_uncorrectable_errors(self, bundle):
        path = f"{BUS}/0000:85:00.0/ras/umc_err_count"
        bundle["files"][path] = "ue: 0\nce: 7\n"
        assert facts(bundle).health == "healthy"
        bundle["files"][path] = "ue: 1\nce: 7\n"
        assert facts(bundle).health == "sick"
        del bundle["files"][path]
        bundle["files"]["/sys/class/drm/card3/device/ras/gfx_err_count"] = "ue: 2\nce: 0\n"
        assert facts(bundle).health == "sick"

    def test_a_gpu_that_fell_off_the_bus(self):
        machine = printers.mesh()
        found = facts(printers.bundle(dataclasses.replace(machine, cards=machine.cards[:7])))
        assert (found.gpus, found.health) == (7, "sick")

    def test_a_guest_has_the_gpus_that_it_was_given(self):
        machine = printers.mesh()
        bundle = printers.bundle(dataclasses.replace(machine, cards=machine.cards[:4]))
        bundle["commands"]["virtualization"] = command("kvm\n", "systemd-detect-virt")
        assert facts(bundle).health == "healthy"

    @pytest.mark.parametrize(("state", "health"), [("", "unknown"), ("live", "sick")])
    def test_no_gpu_is_sickness_only_with_a_driver_that_would_show_it(self, bundle, state, health):
        bundle["commands"] = {}
        bundle["files"] = {
            path: text for path, text in bundle["files"].items() if "/pci/" in path
        } | {"/sys/module/amdgpu/initstate": state}
        assert facts(bundle).health == health
