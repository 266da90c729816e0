# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which a simulated host can be broken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# Compute partitions that a GPU becomes in each mode.
PARTITIONS = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
MEMORY_PARTITIONS = ("NPS1", "NPS2", "NPS4")

SYNTAX = """faults (GPUs are numbered in bus order, from 0; N may be "all"):
  missing=N       GPU N has fallen off the bus: no PCI device, no card, no KFD node
  nokfd=N         GPU N is on the bus and has a card, but no KFD node
  pcie=A:B        no xGMI link between the GPUs A and B: only PCIe is left
  hives=A,B/C,D   xGMI inside these groups only, PCIe between them
  weight=A:B:W    the xGMI link from A to B weighs W, in this direction alone
  numa=N:NODE     GPU N reports this NUMA node (-1: none)
  vram=N:BYTES    GPU N reports this much memory
  linkwidth=N:W   GPU N has trained its PCIe link at xW
  linkspeed=N:GT  GPU N has trained its PCIe link at GT GT/s
  slotwidth=N:W   the link from GPU N's board to its switch has trained at xW
  ue=N:COUNT      GPU N counts uncorrectable memory errors
  partition=N:P   GPU N is in compute partition mode P (SPX, DPX, QPX, CPX)
  memory=N:M      GPU N is in memory partition mode M (NPS1, NPS2, NPS4)
  vf              a guest: the GPUs are virtual functions
  nodriver        amdgpu is not loaded: PCI devices only
"""


class FaultError(ValueError):
    """A fault that is not one."""


@dataclass(frozen=True)
class Faults:
    """All faults of one host; keys and members are GPU numbers in bus order."""

    missing: frozenset[int] = frozenset()
    nokfd: frozenset[int] = frozenset()
    pcie: frozenset[frozenset[int]] = frozenset()
    hives: tuple[frozenset[int], ...] = ()
    weight: dict[tuple[int, int], int] = field(default_factory=dict)
    numa: dict[int, int] = field(default_factory=dict)
    vram: dict[int, int] = field(default_factory=dict)
    linkwidth: dict[int, int] = field(default_factory=dict)
    linkspeed: dict[int, int] = field(default_factory=dict)
    slotwidth: dict[int, int] = field(default_factory=dict)
    ue: dict[int, int] = field(default_factory=dict)
    partition: dict[int, str] = field(default_factory=dict)
    memory: dict[int, str] = field(default_factory=dict)
    vf: bool = False
    nodriver: bool = False


_SETS = ("missing", "nokfd")
_NUMBERS = ("numa", "vram", "linkwidth", "linkspeed", "slotwidth", "ue")
_MODES = {"partition": tuple(PARTITIONS), "memory": MEMORY_PARTITIONS}
_FLAGS = ("vf", "nodriver")


def parse_faults(arguments: Iterable[str], gpus: int = 8) -> Faults:
    """Return the faults that ``KIND=VALUE`` arguments describe; FaultError says what is wrong."""
    flags = dict.fromkeys(_FLAGS, False)
    sets: dict[str, set[int]] = {kind: set() for kind in _SETS}
    numbers: dict[str, dict[int, int]] = {kind: {} for kind in _NUMBERS}
    modes: dict[str, dict[int, str]] = {kind: {} for kind in _MODES}
    pcie: set[frozenset[int]] = set()
    hives: tuple[frozenset[int], ...] = ()
    weight: dict[tuple[int, int], int] = {}
    for argument in arguments:
        kind, _, value = argument.partition("=")
        first, _, second = value.partition(":")
        if kind in flags and not value:
            flags[kind] = True
        elif kind in sets:
            sets[kind].update(_gpus(value, gpus, argument))
        elif kind in numbers:
            number = _number(second, argument)
            numbers[kind].update(dict.fromkeys(_gpus(first, gpus, argument), number))
        elif kind in modes and second in _MODES[kind]:
            modes[kind].update(dict.fromkeys(_gpus(first, gpus, argument), second))
        elif kind == "pcie" and first != second:
            pcie.add(frozenset((_gpu(first, gpus, argument), _gpu(second, gpus, argument))))
        elif kind == "hives":
            hives = _groups(value, gpus, argument)
        elif kind == "weight" and value.count(":") == 2:
            second, _, third = second.partition(":")
            ends = _gpu(first, gpus, argument), _gpu(second, gpus, argument)
            weight[ends] = _number(third, argument)
        else:
            raise FaultError(f"{argument!r} is not a fault")
    return Faults(
        missing=frozenset(sets["missing"]),
        nokfd=frozenset(sets["nokfd"]),
        pcie=frozenset(pcie),
        hives=hives,
        weight=weight,
        **numbers,  # type: ignore[arg-type]  # read by their fields' types
        **modes,  # type: ignore[arg-type]  # read by their fields' types
        **flags,  # type: ignore[arg-type]  # read by their fields' types
    )


def _number(text: str, argument: str) -> int:
    # int() alone would let blanks and underscores pass.
    if not re.fullmatch(r"-?(0x[0-9a-f]+|[0-9]+)", text):
        raise FaultError(f"{argument!r}: {text!r} is not a number")
    return int(text, 16 if "x" in text else 10)


def _gpu(text: str, gpus: int, argument: str) -> int:
    number = _number(text, argument)
    if not 0 <= number < gpus:
        raise FaultError(f"{argument!r}: the GPUs are 0 to {gpus - 1}")
    return number


def _gpus(text: str, gpus: int, argument: str) -> list[int]:
    return list(range(gpus)) if text == "all" else [_gpu(text, gpus, argument)]


def _groups(text: str, gpus: int, argument: str) -> tuple[frozenset[int], ...]:
    groups = [[_gpu(word, gpus, argument) for word in part.split(",")] for part in text.split("/")]
    members = [gpu for group in groups for gpu in group]
    if len(members) != len(set(members)):
        raise FaultError(f"{argument!r}: a GPU is in one group only")
    return tuple(frozenset(group) for group in groups)
