# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a topology that somebody hands in as a document can be one of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..findings import ApiaryError
from .problems import finding
from .types import Topology


def check_sound(topology: Topology, subject: str) -> None:
    """Refuse GPUs that are there twice and links that lead nowhere: ApiaryError TOPO-INVALID."""
    problems = list(_problems(topology))
    if problems:
        more = f" (and {len(problems) - 1} more such)" if len(problems) > 1 else ""
        raise ApiaryError(finding("TOPO-INVALID", subject, problems[0] + more))


def _problems(topology: Topology) -> Iterator[str]:
    seen = Counter((gpu.bdf, gpu.partition) for gpu in topology.gpus if gpu.bdf is not None)
    for (address, partition), count in seen.items():
        if count > 1:
            yield f"GPU {address} partition {partition} is there {count} times"
    keys = topology.by_key
    pairs: set[tuple[str, str]] = set()
    for link in topology.links:
        name = f"the link {link.a} – {link.b}"
        pair = (link.a, link.b) if link.a < link.b else (link.b, link.a)
        if link.a not in keys or link.b not in keys:
            yield f"{name} ends at no GPU of the host"
        elif link.a == link.b:
            yield f"{name} leads back to where it begins"
        elif pair in pairs:
            yield f"{name} is there twice"
        pairs.add(pair)
        if min(link.weight or 0, link.hops or 0, *(link.bandwidth_mb_s or (0,))) < 0:
            yield f"{name} has a negative number"
