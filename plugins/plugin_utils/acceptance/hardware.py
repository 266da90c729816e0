# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the GPUs, their links and what the kernel says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..documents import knowledge
from ..evidence.types import Evidence
from ..gpus import gpu_facts
from ..host.facts import command, is_guest
from ..host.types import Check
from ..topology.types import Topology
from .board import bdf_of

_FACTS = "host/acceptance.yml"
_ERRORS = re.compile(r"^/sys/class/drm/(card\d+)/device/ras/(\w+)_err_count$")
_UNCORRECTABLE = re.compile(r"\bue:\s*(\d+)")
_CAP = re.compile(r"^/sys/class/drm/(card\d+)/device/hwmon/[^/]+/power1_cap$")


def checks(evidence: Evidence, topology: Topology, gpus: int | None) -> Iterator[Check]:
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
    limit = knowledge(_FACTS)["uncorrectable_errors"]["limit"]
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
    sources = knowledge(_FACTS)["sources"]
    for kind in knowledge(_FACTS)["kernel_log"]:
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
