# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What TransferBench prints of its presets a2a and p2p."""

from __future__ import annotations

import re
from dataclasses import dataclass

_AVERAGE = re.compile(r"^Average\s+bandwidth \(GPU Timed\):\s*([\d.]+) GB/s", re.MULTILINE)
# CPU->CPU, CPU->GPU, GPU->CPU, GPU->GPU; N/A where there is no such pair.
_AVERAGES = re.compile(
    r"^[ \t]*Averages \(During\s+(Uni|Bi)Dir\):\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", re.MULTILINE
)
# Newer versions print tables with borders.
_BORDERS = str.maketrans({"│": " ", "|": " ", "║": " "})


@dataclass(frozen=True)
class Transfers:
    """GB/s between GPUs; None for what this preset does not print."""

    average: float | None = None
    one_way: float | None = None
    both_ways: float | None = None


def parse(output: str) -> Transfers:
    """Return the figures of a run; what is not there is None."""
    text = output.translate(_BORDERS)
    average = _AVERAGE.search(text)
    gpus = {found[1]: _number(found[5]) for found in _AVERAGES.finditer(text)}
    return Transfers(_number(average[1]) if average else None, gpus.get("Uni"), gpus.get("Bi"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
