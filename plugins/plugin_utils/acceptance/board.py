# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of GPUs, what the kernel says of them, and what they are plugged into, with firmware."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..documents import knowledge
from ..evidence.types import Evidence
from ..gpus import gpu_facts
from ..host.facts import command, is_guest, kernel_release
from ..host.types import Check, CheckState
from ..topology.types import Topology

_FACTS = "acceptance/hardware.yml"
_FIRMWARE = re.compile(
    r"^/sys/bus/pci/devices/([^/]+)/(?:fw_version/(\w+)_fw_version|(vbios)_version)$"
)
_BAD_PAGES = re.compile(r"^/sys/class/drm/(card\d+)/device/ras/gpu_vram_bad_pages$")
_REPLAYS = re.compile(r"^/sys/class/drm/(card\d+)/device/pcie_replay_count$")
_MEMORY = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
_PACKAGE = re.compile(r"^ii *\trocm-core\t(?:\d+:)?(\d+\.\d+\.\d+)", re.MULTILINE)
# What a settings' version is compared with.
VERSIONS = ("driver", "rocm", "kernel", "bios")


def bdf_of(evidence: Evidence, card: str) -> str:
    """Return the bus address of a DRM card, or its own name."""
    target = evidence.links.get(f"/sys/class/drm/{card}", "")
    functions = re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", target)
    return functions[-1] if functions else card


def links(topology: Topology) -> Iterator[Check]:
    """Yield that every pair is linked; what the topology complains of is a finding of its own."""
    if any("-XGMI-" in finding.code for finding in topology.findings if finding.severity != "info"):
        return
    xgmi = sum(link.type == "xgmi" for link in topology.links)
    if xgmi:
        yield Check(
            "ACCEPT-LINKS",
            topology.host,
            "pass",
            f"{xgmi} of {len(topology.links)} pairs of GPUs linked by xGMI",
            "no pair with a link that is down, missing or indirect",
        )


def pcie(evidence: Evidence, topology: Topology) -> Iterator[Check]:
    """Yield one check a GPU: what its PCIe link has trained at, against what AMD asks for.

    Links that trained below what both ends can are the topology's complaints, bridges included.
    """
    complaints = [item.message for item in topology.findings if item.code == "TOPO-PCIE-LINK"]
    # Of the partitions of one GPU the first stands for all.
    firsts = {item.bdf: item for item in reversed(topology.gpus)}
    for bdf in dict.fromkeys(item.bdf for item in topology.gpus):
        gpu = firsts[bdf]
        nominal = gpu_facts(gpu.model).links
        if bdf is None or nominal.pcie_gt_s is None or gpu.virtual_function:
            continue
        base = f"/sys/bus/pci/devices/{bdf}/current_link_"
        speed = re.match(r"[\d.]+", evidence.files.get(f"{base}speed", "").strip())
        width = evidence.files.get(f"{base}width", "").strip()
        if any(bdf in message for message in complaints):
            continue
        state: CheckState = "unknown"
        actual = "nothing that may be read"
        if speed and width.isdigit():
            good = float(speed[0]) >= nominal.pcie_gt_s and int(width) >= nominal.pcie_lanes
            state, actual = "pass" if good else "fail", f"{float(speed[0]):g} GT/s x{width}"
        yield Check(
            "ACCEPT-PCIE",
            f"{evidence.host}: {bdf}",
            state,
            actual,
            f"{nominal.pcie_gt_s:g} GT/s x{nominal.pcie_lanes}",
            source=nominal.source,
        )


def pcie_errors(evidence: Evidence, topology: Topology) -> Iterator[Check]:
    """Yield one check a GPU whose link counts what went wrong on it."""
    facts = knowledge(_FACTS)["pcie_errors"]
    counted: dict[str, dict[str, int]] = {}
    for path, text in sorted(evidence.files.items()):
        match = _REPLAYS.match(path)
        if match and text.strip().isdigit():
            counted.setdefault(bdf_of(evidence, match[1]), {})["replay_count"] = int(text)
    by_index = {gpu.smi_index: gpu.bdf for gpu in topology.gpus}
    for index, counts in _smi_pcie(evidence):
        bdf = by_index.get(index) or f"GPU {index}"
        for name in facts["counters"]:
            value = counts.get(name)
            if isinstance(value, int):
                counted.setdefault(bdf, {})[name] = value
    for bdf, counters in sorted(counted.items()):
        bad = {name: count for name, count in counters.items() if count > facts["limit"]}
        yield Check(
            "ACCEPT-PCIE-ERRORS",
            f"{evidence.host}: {bdf}",
            "fail" if bad else "pass",
            ", ".join(f"{name} {count}" for name, count in (bad or counters).items()),
            f"at most {facts['limit']} of each of {len(counters)} counters",
        )


def _smi_pcie(evidence: Evidence) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield amd-smi's index and PCIe metrics: a plain list, or below gpu_data since 7.0."""
    output = command(evidence, "pcie_counters")
    text = output.stdout if output else ""
    start = min((place for place in map(text.find, "[{") if place >= 0), default=-1)
    try:
        data = json.loads(text[start:]) if start >= 0 else []
    except ValueError:
        return
    listed = data.get("gpu_data", []) if isinstance(data, dict) else data
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("pcie"), dict):
            index = entry.get("gpu")
            if isinstance(index, int):
                yield index, entry["pcie"]


def memory(evidence: Evidence, topology: Topology, gib: float | None) -> Iterator[Check]:
    """Yield whether the host has the memory that AMD asks for beside its GPUs, or ``gib``."""
    facts = knowledge(_FACTS)["host_memory"]
    needs = gpu_facts(topology.model).host
    tib = needs.memory_tib
    count = len({gpu.bdf for gpu in topology.gpus})
    needed = gib if gib is not None else tib * 1024 * count / facts["gpus"] if tib else None
    match = _MEMORY.search(evidence.files.get("/proc/meminfo", ""))
    if not needed or match is None:
        return
    here = int(match[1]) / 2**20
    yield Check(
        "ACCEPT-MEMORY",
        evidence.host,
        "pass" if here >= needed * (1 - facts["reserved"]) else "fail",
        f"{here:.0f} GiB",
        f"{needed:.0f} GiB, of which firmware and kernel may keep {facts['reserved']:.0%}",
        source=None if gib is not None else needs.source,
    )


def bad_pages(evidence: Evidence) -> Iterator[Check]:
    """Yield one check a GPU whose driver lists pages of memory that went bad."""
    facts = knowledge(_FACTS)["bad_pages"]
    for path, text in sorted(evidence.files.items()):
        match = _BAD_PAGES.match(path)
        if not match:
            continue
        letters = Counter(line.rsplit(":", 1)[-1].strip() for line in text.splitlines() if line)
        waiting = sum(letters[letter] for letter in facts["waiting"])
        retired = sum(letters[letter] for letter in facts["retired"])
        yield Check(
            "ACCEPT-BAD-PAGES",
            f"{evidence.host}: {bdf_of(evidence, match[1])}",
            "fail" if waiting else "pass",
            f"{retired} pages retired, {waiting} waiting for it",
            "no bad page that is still in use",
        )


def firmware(evidence: Evidence) -> Iterator[Check]:
    """Yield whether the GPUs of the host have the same firmware, all components in one check."""
    by_component: dict[str, dict[str, list[str]]] = {}
    for path, text in evidence.files.items():
        part = _FIRMWARE.match(path)
        if part and text.strip():
            versions = by_component.setdefault((part[2] or part[3]).lower(), {})
            versions.setdefault(text.strip(), []).append(part[1])
    if not by_component:
        return
    mixed = {name: versions for name, versions in by_component.items() if len(versions) > 1}
    parts = []
    for name, versions in sorted(mixed.items()):
        ordered = sorted(versions.items(), key=lambda one: (-len(one[1]), one[0]))
        places = (bdfs[0] if len(bdfs) == 1 else f"{len(bdfs)} GPUs" for _version, bdfs in ordered)
        each = [f"{one[0]} on {place}" for one, place in zip(ordered, places, strict=True)]
        parts.append(f"{name}: {', '.join(each)}")
    yield Check(
        "ACCEPT-FIRMWARE",
        evidence.host,
        "fail" if mixed else "pass",
        "; ".join(parts) or f"the same of {len(by_component)} components",
        "the same firmware on all GPUs of the host",
        source=None,
    )


def versions(evidence: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """Yield one check a version that is requested; a pattern may stand for several (6.16.*)."""
    here = _versions(evidence)
    for name, expected in sorted(wanted.items()):
        actual = here.get(name)
        state: CheckState = "unknown" if actual is None else "fail"
        if actual is not None and fnmatch.fnmatchcase(actual, expected):
            state = "pass"
        yield Check(
            "ACCEPT-VERSION",
            f"{evidence.host}: {name}",
            state,
            actual or "not reported by the host",
            expected,
        )


def _versions(evidence: Evidence) -> dict[str, str | None]:
    def file(path: str) -> str | None:
        return evidence.files.get(path, "").strip() or None

    packages = command(evidence, "dpkg_packages") or command(evidence, "rpm_packages")
    package = _PACKAGE.search(packages.stdout) if packages else None
    rocm = file("/opt/rocm/.info/version") or (package[1] if package else None)
    return {
        "driver": file("/sys/module/amdgpu/version"),
        # 7.2.0-81: the build is of no interest.
        "rocm": rocm.split("-")[0] if rocm else None,
        "kernel": kernel_release(evidence),
        "bios": None if is_guest(evidence) else file("/sys/class/dmi/id/bios_version"),
    }


_LIMITS = "host/acceptance.yml"
_ERRORS = re.compile(r"^/sys/class/drm/(card\d+)/device/ras/(\w+)_err_count$")
_UNCORRECTABLE = re.compile(r"\bue:\s*(\d+)")
_CAP = re.compile(r"^/sys/class/drm/(card\d+)/device/hwmon/[^/]+/power1_cap$")


def hardware(evidence: Evidence, topology: Topology, gpus: int | None) -> Iterator[Check]:
    """Yield the checks of the hardware; what the topology itself complains of is not repeated."""
    if all(finding.severity == "info" for finding in topology.findings):
        yield Check(
            "ACCEPT-TOPOLOGY",
            topology.host,
            "pass",
            f"{len(topology.gpus)} GPUs, {len(topology.links)} links",
            "a topology without errors or warnings",
        )
    usable = sum(gpu.healthy is not False for gpu in topology.gpus)
    # What the topology knows of a board that has lost one, it says itself.
    if gpus is not None or not any("-GPU-" in finding.code for finding in topology.findings):
        right, expected = gpus in (None, usable), str(usable if gpus is None else gpus)
        found = f"{usable} usable GPUs"
        yield Check.of("ACCEPT-GPU-COUNT", topology.host, right, found, expected)
    yield from _memory_errors(evidence)
    yield from _power_caps(evidence, topology)
    yield from _kernel_log(evidence)


def _memory_errors(evidence: Evidence) -> Iterator[Check]:
    """Yield one check a card: uncorrectable errors of all its blocks."""
    limit = knowledge(_LIMITS)["uncorrectable_errors"]["limit"]
    cards: dict[str, dict[str, int]] = {}
    for path, text in evidence.files.items():
        counter, counted = _ERRORS.match(path), _UNCORRECTABLE.search(text)
        if counter and counted:
            cards.setdefault(counter[1], {})[counter[2]] = int(counted[1])
    for card, blocks in sorted(cards.items()):
        bad = {block: count for block, count in sorted(blocks.items()) if count > limit}
        yield Check(
            "ACCEPT-UNCORRECTABLE",
            f"{evidence.host}: {bdf_of(evidence, card)}",
            "fail" if bad else "pass",
            ", ".join(f"{count} in {block}" for block, count in bad.items()) or "none",
            f"at most {limit} uncorrectable errors in each of {len(blocks)} blocks",
        )


def _power_caps(evidence: Evidence, topology: Topology) -> Iterator[Check]:
    """Yield one check a card that has a cap; a guest's GPUs have none."""
    models = {gpu.bdf: gpu.model for gpu in topology.gpus}
    if is_guest(evidence):
        return
    for path, text in sorted(evidence.files.items()):
        match = _CAP.match(path)
        if not match or not text.strip().isdigit():
            continue
        bdf = bdf_of(evidence, match[1])
        needs = gpu_facts(models.get(bdf)).host
        expected = needs.power_cap_watts
        if expected is None:
            continue
        watts = int(text) // 1_000_000
        yield Check(
            "ACCEPT-POWER-CAP",
            f"{evidence.host}: {bdf}",
            "pass" if watts == expected else "fail",
            f"{watts} W",
            f"{expected} W",
            source=needs.source,
            allowed=expected,
        )


def _kernel_log(evidence: Evidence) -> Iterator[Check]:
    """Yield one check for each kind of trouble; unknown where the log may not be read."""
    output = command(evidence, "kernel_log")
    if output is None:
        yield Check(
            "ACCEPT-KERNEL-LOG",
            f"{evidence.host}: kernel log",
            "unknown",
            "no log that may be read",
            "no lines of GPUs in trouble",
            advice="let root run `dmesg` on the host",
        )
        return
    sources = knowledge(_LIMITS)["sources"]
    for kind in knowledge(_LIMITS)["kernel_log"]:
        expected = f"no line like {kind['pattern']}"
        subject = f"{evidence.host}: kernel log, {kind['id']}"
        lines = [line for line in output.stdout.splitlines() if re.search(kind["pattern"], line)]
        yield Check(
            "ACCEPT-KERNEL-LOG",
            subject,
            "fail" if lines else "pass",
            f"{len(lines)} lines, the last one {lines[-1].strip()!r}" if lines else "none",
            expected,
            source=sources.get(kind["source"].removeprefix("sources."), kind["source"]),
            minor=kind.get("minor", False),
            advice=kind["advice"],
        )
