# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the network interfaces on the PCI bus, /sys/class/net and /sys/class/infiniband."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from ..types import Nic
from .pci import functions_in
from .text import natural

_INTERFACE = re.compile(r"^/sys/class/(net|infiniband)/([^/]+)$")
_STATES = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}


def nics(files: Mapping[str, str], links: Mapping[str, str]) -> tuple[Nic, ...]:
    """Return the physical interfaces in BDF order.

    What has no PCI function (bridges, bonds), a virtual function of a card in view and what
    hangs off USB is left out. An RDMA device without an interface stands for itself.
    """
    by_nic: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    paths: dict[str, tuple[str, ...]] = {}
    for path, target in sorted(links.items()):
        match = _INTERFACE.match(path)
        functions = functions_in(target)
        if not match or not functions or "/usb" in target or f"{path}/device/physfn" in links:
            continue
        by_nic[functions[-1]][match.group(1)].append(match.group(2))
        paths[functions[-1]] = functions[:-1]
    return tuple(nic for bdf in sorted(by_nic) for nic in _at(bdf, by_nic[bdf], paths[bdf], files))


def _at(
    bdf: str, names: Mapping[str, list[str]], path: tuple[str, ...], files: Mapping[str, str]
) -> Iterator[Nic]:
    """Yield the interfaces of one PCI function."""
    rdma = names["infiniband"][0] if names["infiniband"] else None
    for name in names["net"] or names["infiniband"]:
        base = f"/sys/class/{'net' if names['net'] else 'infiniband'}/{name}"
        speed = natural(files.get(f"{base}/speed"))
        rate, active = _port(rdma, files)
        up = _STATES.get(files.get(f"{base}/operstate", "").strip())
        yield Nic(
            name=name,
            bdf=bdf,
            numa_node=natural(files.get(f"{base}/device/numa_node")),
            rdma_device=rdma,
            speed_mb_s=speed // 8 if speed else rate,
            up=active if up is None else up,
            pci_path=path,
        )


def _port(name: str | None, files: Mapping[str, str]) -> tuple[int | None, bool | None]:
    """Return MB/s and whether it is active, of an RDMA device's first port."""
    base = f"/sys/class/infiniband/{name}/ports/1"
    rate = re.match(r"(\d{1,5})(?:\.\d+)? Gb/sec", files.get(f"{base}/rate", ""))
    state = re.match(r"\d: ([A-Z]+)", files.get(f"{base}/state", ""))
    return (
        int(rate.group(1)) * 1000 // 8 if rate else None,
        state.group(1) == "ACTIVE" if state else None,
    )
