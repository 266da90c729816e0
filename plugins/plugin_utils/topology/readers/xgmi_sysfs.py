# SPDX-License-Identifier: GPL-3.0-or-later

"""Read `cat /sys/class/drm/card*/device/xgmi_num_links`: a row per GPU, in the hive's order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import problems
from ..observation import Device, Observation, Path

NAME = "xgmi_num_links"
_ROW = re.compile(r"^ *((?:[0-9a-f]{2} +)+[0-9a-f]{2}) *$", re.MULTILINE)


def recognise(text: str) -> bool:
    """Say whether text (clean) is rows of two-digit numbers, beside a prompt at most."""
    lines = [line for line in text.splitlines() if line.strip() and "xgmi_num" not in line]
    return len(lines) > 1 and all(_ROW.match(line) for line in lines)


def parse(text: str, subject: str) -> Observation:
    """Return the GPUs of one hive: all are connected by xGMI, directly where links are counted.

    Rows of several hives have no names, so nothing says which of them belong together.
    """
    rows = [tuple(int(word, 16) for word in row.split()) for row in _ROW.findall(text)]
    count = len(rows)
    if {len(row) for row in rows} != {count} or any(rows[place][place] for place in range(count)):
        lengths = ", ".join(sorted({str(len(row)) for row in rows}))
        message = f"{count} rows of {lengths} numbers are not the links of one whole hive"
        return Observation(NAME, findings=(problems.truncated(subject, message),))
    hops = [_hops(rows, own) for own in range(count)]
    devices = tuple(
        Device(index=place, hive_links=rows[place], hive_hops=hops[place]) for place in range(count)
    )
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    return Observation(NAME, devices, tuple(Path(a, b, type="xgmi") for a, b in pairs))


def _hops(rows: Sequence[Sequence[int]], own: int) -> tuple[int, ...]:
    """Return how many links the shortest way to each member takes; len(rows) where none leads."""
    hops = {own: 0}
    edge = [own]
    while edge:
        steps = {peer: hops[a] + 1 for a in edge for peer, links in enumerate(rows[a]) if links}
        edge = [peer for peer in steps if peer not in hops]
        hops |= {peer: steps[peer] for peer in edge}
    return tuple(hops.get(place, len(rows)) for place in range(len(rows)))
