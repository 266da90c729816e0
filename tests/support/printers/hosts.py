# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random hosts as there are: any model, addresses, orders, NUMA nodes, links and partitions."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..printers.machine import Card, Machine, Wire

# PCI device id, product name, GiB, and how many partitions a GPU of the model may become.
MODELS: tuple[tuple[int, str, int, tuple[tuple[str, int], ...]], ...] = (
    (0x738C, "AMD Instinct MI100", 32, ()),
    (0x740F, "AMD Instinct MI210", 64, ()),
    (0x7408, "AMD Instinct MI250X", 64, ()),
    (0x74A0, "AMD Instinct MI300A", 128, (("TPX", 3), ("CPX", 6))),
    (0x74A1, "AMD Instinct MI300X OAM", 192, (("DPX", 2), ("QPX", 4), ("CPX", 8))),
    (0x74A2, "AMD Instinct MI308X", 192, ()),
    (0x74A5, "AMD Instinct MI325X", 256, (("DPX", 2), ("CPX", 8))),
    (0x75A0, "AMD Instinct MI350X", 288, (("DPX", 2),)),
    (0x75A3, "AMD Instinct MI355X", 288, (("DPX", 2),)),
    (0x74B5, "AMD Instinct MI300X VF", 192, ()),
    (0x74B9, "AMD Instinct MI325X VF", 256, ()),
)
MOST = 16


def random_host(rng: random.Random, partitions: bool = False, domains: bool = True) -> Machine:
    """A host whose parts all differ as real ones do; its devices are in the tools' order."""
    device_id, name, gib, modes = rng.choice([m for m in MODELS if m[3] or not partitions])
    compute, parts = rng.choice(modes) if partitions else ("SPX", 1)
    count = min(rng.choice((1, 2, 3, 4, 6, 8, 8, 8)), MOST // parts or 1)
    addresses = _addresses(rng, count, domains)
    nodes = rng.choice((1, 2, 2, 4, 8))
    homes = [rng.randrange(nodes) for _gpu in range(count)]
    ranks = rng.sample(range(count), count)
    serials = [rng.getrandbits(60) | 1 << 60 for _gpu in range(count)]
    oams = rng.sample(range(count), count)
    memory = rng.choice(("NPS1", "NPS1", "NPS4")) if partitions else "NPS1"
    cards = tuple(
        Card(
            bdf=addresses[gpu],
            rank=ranks[gpu] * parts + part,
            numa=homes[gpu],
            device_id=device_id,
            vram=(gib << 30) // parts - rng.randrange(64) * 2**20,
            name=name,
            compute=compute,
            memory=memory,
            part=part,
            serial=serials[gpu],
            oam=oams[gpu],
        )
        for gpu in range(count)
        for part in range(parts)
    )
    return Machine(cards, _wiring(rng, cards), nodes)


def _addresses(rng: random.Random, count: int, domains: bool) -> list[str]:
    """Addresses in order: one domain, or one each (MI300A); buses cd and ab among them."""
    if domains and rng.random() < 0.2:
        return [f"{domain:04x}:01:00.0" for domain in range(count)]
    buses = {*rng.sample((0x05, 0xAB, 0xCD, 0xC9), min(count, 2)), *rng.sample(range(1, 255), 20)}
    return [f"0000:{bus:02x}:00.0" for bus in sorted(rng.sample(sorted(buses), count))]


def _wiring(rng: random.Random, cards: tuple[Card, ...]) -> Callable[[Card, Card], Wire]:
    """A mesh, groups that no index range describes, GPUs of several hops, or PCIe alone."""
    gpus = sorted({card.bdf for card in cards})
    kind = rng.choice(("mesh", "mesh", "groups", "hops", "pcie", "silent"))
    group = {bdf: rng.randrange(2) for bdf in gpus}
    weights = {
        (a, b): rng.choice((15, 30, 45)) if kind == "hops" else 15
        for a in gpus
        for b in gpus
        if a < b
    }
    low, high = (0, 0) if kind == "silent" else rng.choice(((50000, 50000), (50000, 200000)))

    def wire(a: Card, b: Card) -> Wire:
        if a.bdf == b.bdf:
            return Wire("XGMI", 13, 1, (819200, 819200))
        if kind == "pcie" or (kind == "groups" and group[a.bdf] != group[b.bdf]):
            near = a.numa == b.numa
            return Wire("PCIE", 40 if near else 72, 2 if near else 3, (0, 0))
        weight = weights[min(a.bdf, b.bdf), max(a.bdf, b.bdf)]
        return Wire("XGMI", 0 if kind == "silent" else weight, 1, (low, high))

    return wire
