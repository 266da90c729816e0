# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a reading of a printed host must be: the host's own facts, or a word that they are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Topology,
)

from ..printers.formats import LINKS, Format
from ..printers.machine import Card, Machine

# What says that GPUs may be missing, or that what is there is not to be relied upon.
TOLD = {"TOPO-NO-END", "TOPO-SELECTED", "TOPO-GPU-LEFT-OUT"}
_LINK_FIELDS = {"type": "type", "weight": "weight", "hops": "hops", "bandwidth": "bandwidth_mb_s"}


def refused(topology: Topology) -> bool:
    """Say whether it has an error: nobody takes it for a whole host."""
    return any(finding.severity == "error" for finding in topology.findings)


def truth(machine: Machine, index: int, card: Card) -> dict[str, Any]:
    """The fields of Gpu that a machine's device has."""
    return {
        "smi_index": index,
        "bdf": card.bdf,
        "partition": card.part,
        "device_id": f"{card.device_id:04x}",
        "unique_id": f"{card.unique_id:016x}",
        "kfd_node": machine.cpu_nodes + card.rank,
        "hip_ordinal": card.rank,
        "render_node": f"renderD{128 + card.rank}",
        "card": f"card{card.rank}",
        "oam_id": card.oam,
        "vram_bytes": card.vram,
        "numa_node": card.numa,
        "compute_partition": card.compute,
        "memory_partition": card.memory,
    }


def links_of(machine: Machine, form: Format, a: Card, b: Card) -> dict[str, Any]:
    """The fields of Link that a pair has in an output of this form; None is not reported."""
    wire = machine.wire(a, b)
    bandwidth = wire.bandwidth if wire.type == "XGMI" and wire.bandwidth[1] else None
    values = {
        "type": wire.type.lower(),
        "weight": wire.weight or None,
        "hops": wire.hops,
        "bandwidth": bandwidth,
    }
    return {name: value for name, value in values.items() if name in form.facts}


def order(machine: Machine, form: Format) -> list[tuple[int, Card]]:
    """The devices in the order in which a topology of this form has them, with their numbers."""
    cards = list(enumerate(machine.cards))
    return sorted(cards, key=lambda item: item[1].rank) if form.kernel_order else cards


def differences(machine: Machine, form: Format, topology: Topology) -> Iterator[tuple[str, Any]]:
    """Yield what is read otherwise than it is: where, and the value that was read."""
    expected = order(machine, form)
    if len(topology.gpus) != len(expected):
        yield "the number of GPUs", len(topology.gpus)
        return
    place: dict[str, tuple[int, Card]] = {}
    for key, gpu, (index, card) in _matched(topology, expected, form):
        place[key] = index, card
        values = truth(machine, index, card)
        if "bdf" not in form.facts:
            values["bdf"] = None
        for name, value in values.items():
            yield from _difference(f"{name} of GPU {index}", name, gpu, value, form)
    if not form.facts & LINKS:
        return
    for link in topology.links:
        if link.a in place and link.b in place:
            values = links_of(machine, form, place[link.a][1], place[link.b][1])
            for name, field in _LINK_FIELDS.items():
                read = getattr(link, field)
                if name in values and read is not None and read != values[name]:
                    yield f"{name} of {link.a} – {link.b}", read


def lacking(machine: Machine, form: Format, topology: Topology) -> Iterator[str]:
    """Yield the facts that the undamaged output has and the reading has not."""
    expected = order(machine, form)
    for _key, gpu, (index, card) in _matched(topology, expected, form):
        values = truth(machine, index, card)
        for name in form.facts & values.keys():
            partitioned = card.compute != "SPX" and name in ("vram_bytes", "render_node", "card")
            if getattr(gpu, name) is None and values[name] is not None and not partitioned:
                yield f"{name} of GPU {index}"
    links = {(link.a, link.b): link for link in topology.links}
    place = {key: card for key, _gpu, (_index, card) in _matched(topology, expected, form)}
    for a, first in place.items():
        for b, second in place.items():
            for name, value in links_of(machine, form, first, second).items() if a < b else ():
                link = links.get((a, b))
                if value is not None and getattr(link, _LINK_FIELDS[name], None) is None:
                    yield f"{name} of {a} – {b}"


def _matched(
    topology: Topology, expected: list[tuple[int, Card]], form: Format
) -> Iterator[tuple[str, Gpu, tuple[int, Card]]]:
    """Pair what was read with what is: by number where the tool has numbers, else by address."""
    by_index = dict(expected)
    by_address = {(card.bdf, card.part): (index, card) for index, card in expected}
    loose: list[tuple[str, Gpu]] = []
    for key, gpu in topology.by_key.items():
        if gpu.smi_index in by_index and "smi_index" in form.facts:
            index = gpu.smi_index
            yield key, gpu, (index, by_index.pop(index))
            continue
        match = by_address.get((gpu.bdf or "", gpu.partition))
        if match and match[0] in by_index and "smi_index" not in form.facts:
            by_index.pop(match[0])
            yield key, gpu, match
        else:
            loose.append((key, gpu))
    rest = [item for item in expected if item[0] in by_index]
    for (key, gpu), item in zip(loose, rest, strict=False):
        yield key, gpu, item


def _difference(
    where: str, name: str, gpu: Gpu, value: Any, form: Format
) -> Iterator[tuple[str, Any]]:
    read = getattr(gpu, name)
    if name == "partition" and name not in form.facts:
        return
    if name == "vram_bytes" and read and abs(read - (value or 0)) <= 2**20:
        return  # tools round to MiB
    if read is not None and read != value:
        yield where, read


def smaller(machine: Machine, form: Format, topology: Topology, text: str) -> bool:
    """Say whether all lines of a text are those of a host that has only the GPUs that were read.

    No reader can tell it from that host's output. The first and the last line may be cut.
    """
    matched = _matched(topology, order(machine, form), form)
    own = {index for _key, _gpu, (index, _card) in matched}
    cards = tuple(card for index, card in enumerate(machine.cards) if index in own)
    printed = {_words(line) for line in form.show(replace(machine, cards=cards)).splitlines()}
    first, *lines = text.split("\n")
    *lines, last = lines or [""]
    cut = {first, last} - set(form.show(machine).splitlines())
    rest = {_words(line) for line in (first, *lines, last) if line not in cut}
    return rest <= printed | {""}


def _last_line(form: Format, machine: Machine) -> str:
    return form.show(machine).rstrip().rsplit("\n", 1)[-1]


def _words(line: str) -> str:
    """A line without blanks and the way of bridges to a GPU."""
    return " ".join(re.sub(r"^\S+/", "", line).split()).rstrip(",")


def wrong(
    machine: Machine, form: Format, topology: Topology, damaged: str = "", text: str = ""
) -> list[str]:
    """Return what was read wrongly without a word; a value that damaged lines print is theirs.

    Without ``text`` nothing of it is missing.
    """
    if refused(topology):
        return []
    codes = {finding.code for finding in topology.findings}
    result = []
    for where, read in differences(machine, form, topology):
        if where == "the number of GPUs":
            # Lines of several hosts may happen to be in the order of one, and models tell then.
            more = read > len(machine.cards) and "TOPO-MIXED-MODELS" not in codes
            noted = "TOPO-OPEN-LIST" in codes or text.rstrip().endswith(_last_line(form, machine))
            excused = noted and smaller(machine, form, topology, text)
            if more or not (codes & TOLD or excused):
                result.append(f"{read} GPUs of {len(machine.cards)}, and nothing says so")
        elif not printed(read, damaged) and not derived(where, damaged):
            result.append(f"{where} is read as {read}")
    return result


def derived(where: str, damaged: str) -> bool:
    """Say whether a value follows from all that lines print of KFD nodes, one of which changed."""
    return bool(damaged) and where.startswith("hip_ordinal")


def printed(value: Any, text: str) -> bool:
    """Say whether text has a value in any spelling that tools use."""
    if not text:
        return False
    spellings = {str(value)}
    if isinstance(value, tuple):
        spellings = {"-".join(map(str, value)), *map(str, value)}
    if isinstance(value, int):
        spellings |= {f"{value:x}", str(value >> 20), str(value >> 30)}
    if isinstance(value, str):
        number = re.sub(r"^(?:renderD|card)", "", value)
        spellings |= {value.removeprefix("0000:"), value.lstrip("0"), number}
        if re.fullmatch(r"[0-9a-f]{4,16}", value):
            spellings.add(str(int(value, 16)))
    low = text.lower()
    if isinstance(value, str) and (address := re.fullmatch(r"[0-9a-f]{4}:0?(.+):0?(.+)", value)):
        spellings.add(":".join(address.groups()))  # rocm_bandwidth_test's
    if any(len(spelling) > 6 and spelling.lower() in low for spelling in spellings):
        return True
    words = (re.escape(spelling.lower()) for spelling in spellings)
    return any(re.search(rf"(?<![0-9a-z])(?:0x)?{word}(?![0-9a-z])", low) for word in words)
