# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs with their partitions and what links them, as pictures and tables show them."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    LinkType,
    Topology,
)


@dataclass(frozen=True)
class Pair:
    """Two boards and the worst link among their partitions.

    ``keys`` are all GPUs at both ends; ``detour`` says that a PCIe pair has xGMI ways around.
    """

    a: str
    b: str
    type: LinkType | None
    weight: int | None
    keys: tuple[str, ...]
    detour: bool

    def other(self, board: str) -> str:
        """Return the other end."""
        return self.b if board == self.a else self.a


def boards(topology: Topology) -> dict[str, list[tuple[str, Gpu]]]:
    """Return the partitions of each GPU by its address; an unpartitioned GPU has one."""
    found: dict[str, list[tuple[str, Gpu]]] = {}
    for key, gpu in topology.by_key.items():
        found.setdefault(key.split("#")[0], []).append((key, gpu))
    return found


def best_pairs(topology: Topology) -> list[Pair]:
    """Return every linked pair of boards, in order, with PCIe counting before xGMI."""
    members = boards(topology)
    between: dict[tuple[str, str], list[Link]] = {}
    for link in topology.links:
        low, high = sorted((link.a.split("#")[0], link.b.split("#")[0]))
        if low != high and low in members and high in members:
            between.setdefault((low, high), []).append(link)
    kinds = {ends: _worst(links) for ends, links in between.items()}
    hive = _hives(list(members), [ends for ends, kind in kinds.items() if kind == "xgmi"])
    pairs = []
    for (low, high), links in sorted(between.items()):
        weights = [link.weight for link in links if link.weight]
        pairs.append(
            Pair(
                low,
                high,
                kinds[low, high],
                max(weights, default=None),
                tuple(key for board in (low, high) for key, _gpu in members[board]),
                kinds[low, high] == "pcie" and hive[low] == hive[high],
            )
        )
    return pairs


def _worst(links: list[Link]) -> LinkType | None:
    types = {link.type for link in links}
    return "pcie" if "pcie" in types else "xgmi" if types == {"xgmi"} else None


def _hives(names: list[str], linked: list[tuple[str, str]]) -> dict[str, str]:
    """Return for each board the first one of those that xGMI connects it with."""
    hive = {name: name for name in names}
    for a, b in linked:
        old, new = sorted((hive[a], hive[b]), reverse=True)
        hive = {name: new if first == old else first for name, first in hive.items()}
    return hive
