# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which a simulated host can be broken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

PARTITIONS = ("SPX", "DPX", "QPX", "CPX")

SYNTAX = """faults (GPUs are numbered in bus order, from 0):
  missing=N       GPU N has fallen off the bus: no PCI device, no card, no KFD node
  nokfd=N         GPU N is on the bus and has a card, but no KFD node
  pcie=A:B        no xGMI link between the GPUs A and B: only PCIe is left
  numa=N:NODE     GPU N reports this NUMA node (-1: none)
  vram=N:BYTES    GPU N reports this much memory
  linkwidth=N:W   GPU N has trained its PCIe link at xW
  ue=N:COUNT      GPU N counts uncorrectable memory errors
  partition=N:P   GPU N is in compute partition mode P (SPX, DPX, QPX, CPX)
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
    numa: dict[int, int] = field(default_factory=dict)
    vram: dict[int, int] = field(default_factory=dict)
    linkwidth: dict[int, int] = field(default_factory=dict)
    ue: dict[int, int] = field(default_factory=dict)
    partition: dict[int, str] = field(default_factory=dict)
    nodriver: bool = False


def parse_faults(arguments: Iterable[str], gpus: int = 8) -> Faults:
    """Return the faults that ``KIND=VALUE`` arguments describe; FaultError says what is wrong."""
    gone: dict[str, set[int]] = {"missing": set(), "nokfd": set()}
    numbers: dict[str, dict[int, int]] = {"numa": {}, "vram": {}, "linkwidth": {}, "ue": {}}
    pcie: set[frozenset[int]] = set()
    partition: dict[int, str] = {}
    nodriver = False
    for argument in arguments:
        kind, _, value = argument.partition("=")
        first, _, second = value.partition(":")
        if kind == "nodriver" and not value:
            nodriver = True
        elif kind in gone:
            gone[kind].add(_gpu(value, gpus, argument))
        elif kind in numbers:
            numbers[kind][_gpu(first, gpus, argument)] = _number(second, argument)
        elif kind == "pcie" and first != second:
            pcie.add(frozenset((_gpu(first, gpus, argument), _gpu(second, gpus, argument))))
        elif kind == "partition" and second in PARTITIONS:
            partition[_gpu(first, gpus, argument)] = second
        else:
            raise FaultError(f"{argument!r} is not a fault")
    return Faults(
        missing=frozenset(gone["missing"]),
        nokfd=frozenset(gone["nokfd"]),
        pcie=frozenset(pcie),
        partition=partition,
        nodriver=nodriver,
        **numbers,
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
