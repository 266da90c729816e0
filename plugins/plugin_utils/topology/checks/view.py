# SPDX-License-Identifier: GPL-3.0-or-later

"""What every check looks at: the host, its PCI slots, its xGMI ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...findings import Finding
from .. import problems
from ..fabric import Fabric
from ..readers.pci import Slot
from ..types import Gpu, Topology, gpu_keys


@dataclass(frozen=True)
class View:
    """One host; ``gpus`` are by key, in BDF order, ``usable`` those that programs can use."""

    topology: Topology
    slots: tuple[Slot, ...]
    fabric: Fabric

    @cached_property
    def gpus(self) -> Mapping[str, Gpu]:
        return dict(zip(gpu_keys(self.topology.gpus), self.topology.gpus, strict=True))

    @cached_property
    def usable(self) -> Mapping[str, Gpu]:
        return {key: gpu for key, gpu in self.gpus.items() if gpu.healthy is not False}

    @cached_property
    def by_address(self) -> Mapping[str, Sequence[Gpu]]:
        """Return the usable devices of each PCI function: one, or its partitions."""
        devices: dict[str, list[Gpu]] = defaultdict(list)
        for gpu in self.usable.values():
            if gpu.bdf is not None:
                devices[gpu.bdf].append(gpu)
        return devices

    def finding(self, code: str, message: str, *parts: tuple[str, ...]) -> Finding:
        """Return a finding about the host, or about GPUs and pairs of them in it."""
        return problems.finding(code, self.topology.host, message, parts=parts)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Return some names as prose, without the tail of a long list."""
    tail = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + tail


def addresses(keys: Iterable[str]) -> list[str]:
    """Return the GPUs that keys belong to, each once: partitions share one."""
    return list(dict.fromkeys(key.partition("#")[0] for key in keys))
