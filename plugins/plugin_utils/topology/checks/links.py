# SPDX-License-Identifier: GPL-3.0-or-later

"""How xGMI connects the GPUs: ports, groups, and the ways between their members."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...findings import Finding
from ...gpus import gpu_facts
from ..types import Link
from .view import View, addresses, listed

# Of one physical xGMI hop between whole GPUs, as the driver weighs it (rocm-systems#7372).
_HOP = 15


def ports(view: View) -> Iterator[Finding]:
    """Find ports and links that are down; who reports all of them so is not in the fabric."""
    fabric = view.fabric
    for pair in fabric.down_links:
        whole = "the xGMI link" if pair in fabric.dead_links else "part of the xGMI link"
        message = f"{whole} {' – '.join(pair)} is down{_says(view, 'down_links')}"
        yield view.finding("TOPO-XGMI-DOWN", message, pair)
    named = {key for pair in fabric.down_links for key in pair}
    down = {key: numbers for key, numbers in fabric.down_ports.items() if key not in named}
    single = [key for key, numbers in down.items() if len(numbers) == 1]
    for key, numbers in down.items():
        which = "port" if len(numbers) == 1 else "ports"
        verb = "is" if len(numbers) == 1 else "are"
        message = f"GPU {key}: xGMI {which} {', '.join(map(str, numbers))} {verb} down"
        message += _says(view, "down_ports")
        if len(down) == len(single) == 2:
            (other,) = (end for end in single if end != key)
            message += f"; so is one of {other}, most likely the other end"
        yield view.finding("TOPO-XGMI-DOWN", message, (key,))


def _says(view: View, what: str) -> str:
    source = view.fabric.sources.get(what)
    return f" ({source})" if source else ""


def groups(view: View) -> Iterator[Finding]:
    """Look at the groups that xGMI connects, for each model by itself.

    Inside one, every pair is linked by xGMI. That holds for MI250X too, whose indirect pairs the
    driver calls xGMI with a higher weight.
    """
    types = {(link.a, link.b): link.type for link in view.topology.links}
    keys_of: dict[str | None, list[str]] = defaultdict(list)
    for key, gpu in view.usable.items():
        keys_of[gpu.model].append(key)
    for model, keys in keys_of.items():
        hives = connected(keys, types)
        for hive in hives:
            yield from _absent(view, hive, types)
        if any(len(addresses(hive)) > 1 for hive in hives):
            yield from _apart(view, model, hives, types)
        elif _only_pcie(view, model, keys, types):
            yield view.finding(
                "TOPO-XGMI-NONE",
                f"{len(addresses(keys))} {model} have no xGMI link among them; their board has a "
                "full mesh",
            )


Types = Mapping[tuple[str, str], str | None]


def connected(keys: Sequence[str], types: Types) -> list[list[str]]:
    """Return the groups that xGMI connects, each in the order of keys."""
    peers: dict[str, set[str]] = defaultdict(set)
    for (a, b), kind in types.items():
        if kind == "xgmi":
            peers[a].add(b)
            peers[b].add(a)
    # Partitions of one GPU are one, whatever is known of the ways between them.
    for key in keys:
        peers[key] |= {other for other in keys if addresses([other]) == addresses([key])}
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for key in keys:
        if key in grouped:
            continue
        group, queue = {key}, [key]
        while queue:
            new = (peers[queue.pop()] & set(keys)) - group
            group |= new
            queue += new
        grouped |= group
        groups.append([other for other in keys if other in group])
    return groups


def _absent(view: View, hive: Sequence[str], types: Types) -> Iterator[Finding]:
    """Find the pairs of a group that only PCIe links."""
    pairs = [(min(pair), max(pair)) for pair in itertools.combinations(hive, 2)]
    absent = [
        pair for pair in pairs if types.get(pair) == "pcie" and pair not in view.fabric.dead_links
    ]
    names = list(dict.fromkeys(" – ".join(addresses(pair)) for pair in absent))
    if names:
        yield view.finding(
            "TOPO-XGMI-ABSENT",
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} linked by PCIe, in a group of "
            f"{len(addresses(hive))} GPUs that xGMI connects otherwise",
            *absent,
        )


def _apart(
    view: View, model: str | None, hives: Sequence[Sequence[str]], types: Types
) -> Iterator[Finding]:
    """Judge several groups: a board that is a mesh has one; bridges join any number of GPUs."""
    everyone = list(itertools.chain.from_iterable(hives))
    mesh = gpu_facts(model).links.mesh
    whole = [hive for hive in hives if len(addresses(hive)) > 1]
    for hive in hives:
        if hive not in whole and any(
            types.get((min(hive[0], other), max(hive[0], other))) for other in everyone
        ):
            yield view.finding(
                "TOPO-XGMI-ISOLATED",
                f"GPU {addresses(hive)[0]} has no xGMI link, while "
                f"{max(len(addresses(group)) for group in whole)} others are connected",
                (addresses(hive)[0],),
            )
    sizes = [str(len(addresses(hive))) for hive in whole]
    virtual = any(view.gpus[key].virtual_function for key in everyone)
    if mesh and not virtual and len(whole) > -(-len(addresses(everyone)) // mesh):
        yield view.finding(
            "TOPO-XGMI-SPLIT",
            f"xGMI connects the {model} in {len(whole)} groups ({_members(whole)}); their board "
            f"links all {mesh} to each other",
        )
    elif len(set(sizes)) > 1:
        yield view.finding(
            "TOPO-XGMI-HIVES", f"the xGMI groups have {listed(sizes)} GPUs ({_members(whole)})"
        )
    elif len(whole) > 1:
        yield view.finding(
            "TOPO-XGMI-GROUPS", f"xGMI connects {len(whole)} groups of GPUs: {_members(whole)}"
        )
        yield from _across_nodes(view, whole)


def _members(hives: Sequence[Sequence[str]]) -> str:
    return " | ".join(listed(addresses(hive), 8) for hive in hives)


def _across_nodes(view: View, hives: Sequence[Sequence[str]]) -> Iterator[Finding]:
    """Tell of groups that no single NUMA node holds, though the host has a group for each."""
    nodes = [{view.gpus[key].numa_node for key in hive} - {None} for hive in hives]
    spread = [hive for hive, own in zip(hives, nodes, strict=True) if len(own) > 1]
    if spread:
        yield view.finding(
            "TOPO-XGMI-ACROSS-NUMA",
            f"the GPUs of {'one xGMI group' if len(spread) == 1 else f'{len(spread)} xGMI groups'} "
            f"hang off several NUMA nodes: {_members(spread)}",
        )


def _only_pcie(view: View, model: str | None, keys: Sequence[str], types: Types) -> bool:
    reported = [types.get((min(pair), max(pair))) for pair in itertools.combinations(keys, 2)]
    virtual = any(view.gpus[key].virtual_function for key in keys)
    pcie_only = bool(reported) and all(kind == "pcie" for kind in reported)
    return pcie_only and not virtual and bool(gpu_facts(model).links.mesh)


def routes(view: View) -> Iterator[Finding]:
    """Find the pairs of a full mesh that reach each other through a third GPU.

    The driver writes an xGMI link for every pair of a hive and weighs it by hops, so a link that
    was down at boot shows in the weight, or in the count of physical links.
    """
    indirect = [link for link in view.topology.links if _is_routed(view, link)]
    if indirect:
        names = [f"{link.a} – {link.b}{_weight(link)}" for link in indirect]
        yield view.finding(
            "TOPO-XGMI-INDIRECT",
            f"{listed(names)}: no direct xGMI link, on a board that links every pair",
            *((link.a, link.b) for link in indirect),
        )


def _weight(link: Link) -> str:
    return f" (weight {link.weight})" if link.weight and link.weight > _HOP else ""


def _is_routed(view: View, link: Link) -> bool:
    ends = [view.gpus.get(key) for key in (link.a, link.b)]
    if link.type != "xgmi" or "#" in link.a + link.b:
        return False  # between partitions weights are others
    if any(gpu is None or not gpu_facts(gpu.model).links.mesh for gpu in ends):
        return False
    return (link.weight or 0) > _HOP or view.fabric.num_links.get((link.a, link.b)) == 0
