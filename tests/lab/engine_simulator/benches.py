# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Benchmarks of simulated deployments: what stands for a load host and its disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.drive import Drive
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Load,
    Raw,
    Requested,
    Target,
)

from engine_simulator.parameters import Client, Faults, Parameters
from engine_simulator.simulate import simulate


class Memory:
    """Keeps raw results like a directory; after ``most`` of them the run is interrupted."""

    def __init__(self, most: int | None = None) -> None:
        self.kept: dict[str, Raw] = {}
        self.most = most
        self.begun: Counter[str] = Counter()

    def begin(self, key: str) -> int:
        """Note that a load is about to be sent; return how often it was before."""
        self.begun[key] += 1
        return self.begun[key] - 1

    def get(self, key: str) -> Raw | None:
        """Return what is kept under a key."""
        return self.kept.get(key)

    def put(self, key: str, raw: Raw) -> str:
        """Keep a raw result."""
        if self.most is not None and len(self.kept) >= self.most:
            raise KeyboardInterrupt
        self.kept[key] = raw
        return self.name(key)

    def name(self, key: str) -> str:
        """Return the name of the file under a key."""
        return f"{key}.json"


def runner(
    parameters: Parameters,
    seed: int = 0,
    client: Client | None = None,
    faults: Faults | None = None,
) -> Callable[[Load], Raw]:
    """Return what measures a load on the simulator."""

    def run(load: Load) -> Raw:
        return simulate(parameters, load, seed, client, faults)

    return run


def target_of(parameters: Parameters) -> Target:
    """Return the address that a simulated deployment would have."""
    count = parameters.replicas
    return Target(
        urls=("http://simulated:8000",),
        model=parameters.model,
        metrics=tuple(f"http://replica-{index}:8000/metrics" for index in range(count)),
        gpus=count * parameters.gpus_per_replica,
        hosts=1,
    )


def bench(
    parameters: Parameters,
    requested: Requested,
    seed: int = 0,
    client: Client | None = None,
    store: Memory | None = None,
    **more: Any,
) -> Bench:
    """Return the whole benchmark of a simulated deployment."""
    progress = {name: more.pop(name) for name in ("progress",) if name in more}
    keeps = store if store is not None else Memory()
    driver = Drive(requested, runner(parameters, seed, client), keeps, **progress)
    target, environment = target_of(parameters), more.pop("environment", {})
    return driver.bench(parameters.name, "2026-01-01T00:00:00Z", target, environment, **more)
