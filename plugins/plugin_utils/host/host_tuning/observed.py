# SPDX-License-Identifier: GPL-3.0-or-later

"""What a role cannot set and the kernel shows: BIOS settings, ACS, memory."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from ...evidence.types import Evidence
from ...gpus import gpu_facts
from ...numbers import parse_cpulist
from .. import facts
from ..types import Check, CheckState
from .catalogue import Setting
from .machine import Machine

# State, what was found, what is expected.
Answer = tuple[CheckState, str, str]
GIB = 2**30


def check(evidence: Evidence, machine: Machine, setting: Setting) -> Check:
    """Return the check of one setting that can only be looked at."""
    state, found, expected = LOOKS[setting.id](evidence, machine, setting)
    return Check(
        str(setting.facts["code"]),
        f"{evidence.host}: {setting.id}",
        state,
        found,
        expected,
        source=setting.source,
    )


def _acs(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    expected = "SrcValid- in ACSCtl of every bridge"
    said = facts.command(evidence, "lspci_bridges")
    if said is None:
        return "unknown", "no answer of lspci", expected
    if "access denied" in said.stdout:
        return "unknown", "lspci without root", expected
    enabled = []
    for block in re.split(r"\n(?=\S)", said.stdout):
        control = re.search(r"ACSCtl:.*", block)
        if control and "SrcValid+" in control.group(0):
            enabled.append(block.split(" ", 1)[0])
    if not enabled:
        return "pass", "SrcValid+ nowhere", expected
    shown = ", ".join(enabled[:4]) + (f" and {len(enabled) - 4} more" if len(enabled) > 4 else "")
    return "fail", f"SrcValid+ at {shown}", expected


def _nps(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    nodes, sockets = (machine.lscpu.get(name, "") for name in ("NUMA node(s)", "Socket(s)"))
    if machine.container:
        return "skip", "lscpu in a container shows the sockets of its machine", "one node a socket"
    if not nodes.isdigit() or not sockets.isdigit():
        return "unknown", "lscpu does not tell nodes and sockets", "one node a socket"
    state: CheckState = "pass" if nodes == sockets else "fail"
    return state, f"{nodes} NUMA nodes, {sockets} sockets", "one node a socket"


def _smt(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    active = evidence.files.get("/sys/devices/system/cpu/smt/active", "").strip()
    if active not in ("0", "1"):
        return "unknown", "the kernel does not tell", "0"
    return ("fail" if active == "1" else "pass"), active, "0"


def _iommu(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    expected = "identity"
    types = [
        text.strip()
        for path, text in evidence.files.items()
        if fnmatch.fnmatchcase(path, "/sys/kernel/iommu_groups/*/type")
    ]
    if machine.container:
        return "skip", "a container shows the groups of its machine", expected
    if not types:
        return "fail", "no IOMMU group", expected
    other = sorted({kind for kind in types if kind != "identity"})
    if other:
        return "fail", f"{len(types)} groups, among them {', '.join(other)}", expected
    return "pass", f"{len(types)} groups of identity", expected


def _x2apic(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    present, online = (
        evidence.files.get(f"/sys/devices/system/cpu/{name}", "").strip()
        for name in ("present", "online")
    )
    if not present or not online:
        return "unknown", "the kernel does not tell", "all CPUs online"
    missing = set(parse_cpulist(present)) - set(parse_cpulist(online))
    # With SMT switched off by the kernel, every second thread is offline on purpose.
    if missing and evidence.files.get("/sys/devices/system/cpu/smt/control", "").strip() == "off":
        return "pass", f"{online} online, SMT is off", "all CPUs online"
    return ("fail" if missing else "pass"), f"{online} online of {present}", "all CPUs online"


def _link(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    speed, lanes = setting.facts["gt_s"], setting.facts["lanes"]
    expected = f"{speed:g} GT/s x{lanes}"
    # On one board of eight; others are cards, with links of their own.
    gpus = [gpu for gpu in machine.gpus if gpu_facts(gpu.model).links.mesh == 8]
    known = [gpu for gpu in gpus if gpu.speed and gpu.lanes]
    if not known:
        return "unknown", "no GPU of the baseboard tells its link", expected
    slow = [
        f"{gpu.bdf} at {gpu.speed:g} GT/s x{gpu.lanes}"
        for gpu in known
        if gpu.speed != speed or gpu.lanes != lanes
    ]
    return ("fail" if slow else "pass"), ", ".join(slow) or f"{len(known)} GPUs at it", expected


def _memory(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    nodes = [
        text
        for path, text in evidence.files.items()
        if fnmatch.fnmatchcase(path, "/sys/devices/system/node/node*/meminfo")
    ]
    lines = nodes or [evidence.files.get("/proc/meminfo", "")]
    totals = [re.search(r"MemTotal:\s+(\d+) kB", text) for text in lines]
    total = sum(int(found.group(1)) * 1024 for found in totals if found)
    vram = sum(gpu.vram_bytes or 0 for gpu in machine.gpus)
    expected = "more than the GPUs have together"
    if not total or not vram:
        return "unknown", "memory of host or GPUs is not known", expected
    found = f"{total / GIB:.0f} GiB, the GPUs have {vram / GIB:.0f} GiB"
    return ("pass" if total > vram else "fail"), found, expected


def _shm(evidence: Evidence, machine: Machine, setting: Setting) -> Answer:
    wanted = int(setting.facts["bytes"])
    expected = f"at least {wanted / GIB:.0f} GiB"
    said = facts.command(evidence, "shared_memory")
    size = (said.stdout.split() if said else [""])[-1]
    if not size.isdigit():
        return "unknown", "df does not tell the size of /dev/shm", expected
    state: CheckState = "pass" if int(size) >= wanted else "fail"
    return state, f"{int(size) / GIB:.1f} GiB", expected


LOOKS: dict[str, Callable[[Evidence, Machine, Setting], Answer]] = {
    "acs": _acs,
    "nps": _nps,
    "smt": _smt,
    "iommu_enabled": _iommu,
    "x2apic": _x2apic,
    "pcie_link": _link,
    "host_memory": _memory,
    "shared_memory": _shm,
}
