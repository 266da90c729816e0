# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can only be looked at: BIOS settings, ACS, memory."""

import pytest

from support.host.tuning import gpu, host, said, tuned

LSPCI = """\
0000:00:01.1 PCI bridge: Root port
\t\tACSCap:\tSrcValid+ TransBlk+
\t\tACSCtl:\tSrcValid{} TransBlk-
0000:01:00.0 PCI bridge: Switch
\t\tACSCap:\tSrcValid+
\t\tACSCtl:\tSrcValid{} ReqRedir+
"""
CPU = "/sys/devices/system/cpu/"
GROUP = "/sys/kernel/iommu_groups/"
MEMORY = "/sys/devices/system/node/node{}/meminfo"


def nodes(*kilobytes):
    return {
        MEMORY.format(n): f"Node {n} MemTotal:  {size} kB\n" for n, size in enumerate(kilobytes)
    }


CASES = [
    ("acs", {"lspci_bridges": said(LSPCI.format("-", "-"))}, "pass", "SrcValid+ nowhere"),
    ("acs", {"lspci_bridges": said(LSPCI.format("-", "+"))}, "fail", "SrcValid+ at 0000:01:00.0"),
    (
        "acs",
        {"lspci_bridges": said("0000:00:01.1 x\n\tCapabilities: <access denied>\n")},
        "unknown",
        "lspci without root",
    ),
    ("acs", {"lspci_bridges": said("", None, "not found")}, "unknown", "no answer of lspci"),
    ("nps", {}, "pass", "2 NUMA nodes, 2 sockets"),
    (
        "nps",
        {"lscpu_summary": said("Socket(s): 2\nNUMA node(s): 8\n")},
        "fail",
        "8 NUMA nodes, 2 sockets",
    ),
    ("nps", {"lscpu_summary": said("")}, "unknown", "lscpu does not tell nodes and sockets"),
    ("nps", {"virtualization": "docker"}, "skip", "lscpu in a container shows"),
    ("smt", {}, "pass", "0"),
    ("smt", {"files": {CPU + "smt/active": "1\n"}}, "fail", "1"),
    ("smt", {"gone": [CPU + "smt/active"]}, "unknown", "the kernel does not tell"),
    ("iommu_enabled", {}, "pass", "1 groups of identity"),
    ("iommu_enabled", {"files": {GROUP + "1/type": "DMA-FQ\n"}}, "fail", "2 groups, among them"),
    ("iommu_enabled", {"gone": [GROUP + "0/type"]}, "fail", "no IOMMU group"),
    ("x2apic", {}, "pass", "0-3 online of 0-3"),
    ("x2apic", {"files": {CPU + "online": "0-254", CPU + "present": "0-383"}}, "fail", "0-254"),
    (
        "x2apic",
        {"files": {CPU + "online": "0-1", CPU + "smt/control": "off\n"}},
        "pass",
        "0-1 online, SMT is off",
    ),
    ("pcie_link", {}, "pass", "1 GPUs at it"),
    ("pcie_link", {"gpus": gpu(width="8")}, "fail", "0000:05:00.0 at 32 GT/s x8"),
    ("pcie_link", {"gpus": gpu(speed="16.0 GT/s PCIe")}, "fail", "0000:05:00.0 at 16 GT/s x16"),
    ("pcie_link", {"gpus": gpu("0x740f", width="8")}, "unknown", "no GPU of the baseboard"),
    ("host_memory", {}, "pass", "4096 GiB, the GPUs have 256 GiB"),
    ("host_memory", {"files": nodes(2**27, 2**27)}, "fail", "256 GiB, the GPUs have 256 GiB"),
    ("host_memory", {"gpus": {}}, "unknown", "memory of host or GPUs is not known"),
    ("shared_memory", {}, "pass", "16.0 GiB"),
    ("shared_memory", {"shared_memory": said("1B-blocks\n67108864\n")}, "fail", "0.1 GiB"),
    ("shared_memory", {"shared_memory": said("", 1)}, "unknown", "df does not tell"),
]


@pytest.mark.parametrize(("name", "given", "state", "found"), CASES)
def test_what_is_observed(name, given, state, found):
    (check,) = [one for one in tuned(host(**given)).checks if one.subject == f"gpu-001: {name}"]
    assert (check.state, check.found.startswith(found)) == (state, True), check
    assert check.remedy


def test_what_is_switched_off_is_not_looked_at():
    plan = tuned(host(files={CPU + "smt/active": "1\n"}), settings={"smt": False})
    assert not [one for one in plan.checks if one.code == "TUNE-SMT"]
