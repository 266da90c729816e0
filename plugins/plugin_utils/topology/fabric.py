# SPDX-License-Identifier: GPL-3.0-or-later

"""The physical xGMI ports and links of a host, by GPU key; beside the topology, for its checks."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from .join import Entry
from .observation import Device, LinkState, Observation

Pair = tuple[str, str]


@dataclass(frozen=True)
class Fabric:
    """What tools and kernel say of ports and links; empty where none tells.

    ``down_ports`` are the numbers of the ports that are down, of GPUs of which some port is up:
    a virtual function and a GPU without bridges report all of theirs down. ``down_links`` are
    pairs of GPU keys (a < b) of whose direct links some are down, ``dead_links`` those of which
    all are. ``num_links`` counts the physical links between two GPUs (a < b), 0 being none, and
    ``num_hops`` those that the way between them takes; ``sources`` says who told each part.
    """

    down_ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    down_links: tuple[Pair, ...] = ()
    dead_links: tuple[Pair, ...] = ()
    num_links: Mapping[Pair, int] = field(default_factory=dict)
    num_hops: Mapping[Pair, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


def fabric(
    entries: Sequence[Entry], keys: Sequence[str], observations: Sequence[Observation]
) -> Fabric:
    """Return what the sources say of the physical links between the GPUs of a host."""
    sources: dict[str, str] = {}
    ports: dict[str, tuple[int, ...]] = {}
    for entry, key in zip(entries, keys, strict=True):
        by_tool = {name: device.ports for name, device in entry.reported.items() if device.ports}
        for source, states in by_tool.items():
            down = tuple(number for number, state in enumerate(states) if state == "D")
            if key not in ports and "U" in states and down:
                ports[key], sources["down_ports"] = down, source
    states_of: dict[Pair, set[LinkState]] = {}
    for observation in observations:
        parsed = dict(_states(observation, entries, keys))
        # A guest is told that all of its links are down (rocm-systems#2053).
        if "up" in {state for states in parsed.values() for state in states}:
            states_of, sources["down_links"] = parsed, observation.source
            break
    hives = _hive_rows(entries, keys)
    num_links = dict(_pairs(hives, "links", min))
    if num_links:
        sources["num_links"] = "xgmi_num_links"
    num_hops = {pair: hops for pair, hops in _pairs(hives, "hops", max) if hops}
    # No link is no direct way, whatever else is said of it.
    num_hops |= {pair: max(num_hops.get(pair, 0), 2) for pair, n in num_links.items() if n == 0}
    return Fabric(
        down_ports=ports,
        down_links=tuple(sorted(pair for pair, states in states_of.items() if states != {"up"})),
        dead_links=tuple(sorted(pair for pair, states in states_of.items() if "down" in states)),
        num_links=num_links,
        num_hops=num_hops,
        sources=sources,
    )


def _states(
    observation: Observation, entries: Sequence[Entry], keys: Sequence[str]
) -> Iterator[tuple[Pair, set[LinkState]]]:
    """Yield the states that one source gives each pair, of both directions."""
    name = observation.source
    at = {e.place[name]: key for e, key in zip(entries, keys, strict=True) if name in e.place}
    states: dict[Pair, set[LinkState]] = defaultdict(set)
    for path in observation.paths:
        if path.state and path.a in at and path.b in at:
            low, high = sorted((at[path.a], at[path.b]))
            states[low, high].add(path.state)
    yield from states.items()


class _Rows(NamedTuple):
    """A GPU's place in its hive, and its rows: a number for each member; () where not told."""

    place: int
    links: tuple[int, ...]
    hops: tuple[int, ...]


def _hive_rows(entries: Sequence[Entry], keys: Sequence[str]) -> dict[int | None, dict[str, _Rows]]:
    """Return, per hive, each GPU's place in it and its rows of xgmi_num_links and xgmi_num_hops.

    A row has one number for each member in the kernel's order; a GPU's own place is where its
    hops are 0 (amdgpu_xgmi.c), or the links where only one of them is 0.
    """
    hives: dict[int | None, dict[str, _Rows]] = defaultdict(dict)
    functions = Counter(entry.bdf for entry in entries)
    for entry, key in zip(entries, keys, strict=True):
        devices = list(entry.reported.values())
        row = next((device.hive_links for device in devices if device.hive_links), None)
        hops = next((device.hive_hops for device in devices if device.hive_hops), ())
        own = [place for place, number in enumerate(hops or row or ()) if number == 0]
        if row is None or len(own) != 1 or len(row) != len(hops or row):
            continue
        if entry.bdf is None or functions[entry.bdf] == 1:
            hives[_hive(devices)][key] = _Rows(own[0], row, hops)
    # A hive without any link is none: a guest reads zeros.
    return {
        hive: members
        for hive, members in hives.items()
        if any(number for rows in members.values() for number in rows.links)
    }


def _hive(told: Sequence[Device]) -> int | None:
    return next((device.hive_id for device in told if device.hive_id), None)


def _pairs(
    hives: Mapping[int | None, Mapping[str, _Rows]],
    name: Literal["links", "hops"],
    worse: Callable[[int, int], int],
) -> Iterator[tuple[Pair, int]]:
    """Yield what two members of a hive say of each other, the worse of the two numbers."""
    for members in hives.values():
        places = Counter(rows.place for rows in members.values())
        if max(places.values()) > 1 or any(
            max(places) >= len(rows.links) for rows in members.values()
        ):
            continue  # several hives that nothing tells apart
        for a, b in itertools.combinations(sorted(members), 2):
            here, there = getattr(members[a], name), getattr(members[b], name)
            if here and there:
                yield (a, b), worse(here[members[b].place], there[members[a].place])
