# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of rccl-tests: a line a message size, out of place and in place."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One message size in bytes, and the bus bandwidth in GB/s, out of place and in place."""

    bytes: int
    out_of_place: float
    in_place: float


@dataclass(frozen=True)
class Rccl:
    """``wrong`` is how many values came out wrong; None where the program did not say."""

    rows: tuple[Row, ...]
    wrong: int | None


def parse(output: str) -> Rccl:
    """Return the rows of a run, whatever else is printed around them.

    Columns: size, count, type, redop, root, then time, algbw, busbw, #wrong twice; collectives
    without an operation or a root have fewer columns in front.
    """
    rows = []
    for line in output.splitlines():
        words = line.split()
        if len(words) < 10 or not words[0].isdigit() or not words[1].isdigit():
            continue
        try:
            rows.append(Row(int(words[0]), float(words[-6]), float(words[-2])))
        except ValueError:
            continue
    match = _OUT_OF_BOUNDS.search(output)
    return Rccl(tuple(rows), int(match[1]) if match else None)
