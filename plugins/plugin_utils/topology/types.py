# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's evidence means: GPUs, links, NUMA nodes. The contract `apiary.topology/v1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..findings import Finding

LinkType = Literal["xgmi", "pcie"]
# The GPUs that a finding is about, and the pairs whose link it is about, by key.
Parts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Gpu:
    """One GPU or one partition of it. Identity is ``bdf`` + ``partition``; ``None`` is unknown.

    ``bdf`` is that of the PCI function, which partitions share. Only a capture of a tool that
    numbers GPUs and prints no bus leaves it unknown; no plan can be made from such a topology.
    ``healthy`` is False for a GPU that the host has and cannot use. ``pci_path`` are the bridges
    above it, root port first, as the kernel's device path has them; () where nothing tells.
    """

    bdf: str | None
    partition: int = 0
    model: str | None = None
    device_id: str | None = None
    virtual_function: bool | None = None
    smi_index: int | None = None
    kfd_node: int | None = None
    hip_ordinal: int | None = None
    render_node: str | None = None
    unique_id: str | None = None
    numa_node: int | None = None
    vram_bytes: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    healthy: bool | None = None
    card: str | None = None
    oam_id: int | None = None
    pci_path: tuple[str, ...] = ()
    vram_used_bytes: int | None = None


@dataclass(frozen=True)
class Nic:
    """A physical network interface; ``rdma_device`` is its InfiniBand or RoCE name (mlx5_0).

    ``speed_mb_s`` is in MB/s, as the bandwidth of links is: 400 Gb/s are 50000.
    """

    name: str
    bdf: str
    numa_node: int | None = None
    rdma_device: str | None = None
    speed_mb_s: int | None = None
    up: bool | None = None
    pci_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Link:
    """The best path between two GPUs (keys, a < b). Weight 0 and bandwidth 0-0 never get here."""

    a: str
    b: str
    type: LinkType | None = None
    hops: int | None = None
    weight: int | None = None
    bandwidth_mb_s: tuple[int, int] | None = None


@dataclass(frozen=True)
class NumaNode:
    """A memory node; ``cpus`` and each of ``cores`` (SMT siblings together) are cpulists."""

    id: int
    cpus: str
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()
    cores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Start:
    """What an engine on ``gpus`` measured of itself at its last start, at the Unix time ``at``.

    ``recipe`` is that of its plan. It is the host's own word.
    """

    unit: str
    at: int
    engine_version: str
    gpu_model: str
    recipe: str
    gpus: tuple[str, ...] = ()
    kv_tokens: int | None = None
    weights_bytes_per_gpu: int | None = None


@dataclass(frozen=True)
class Mark:
    """What in the host a finding is about; ``finding`` is its place in ``findings``, from 0."""

    finding: int
    parts: Parts


@dataclass(frozen=True)
class Topology:
    """One host, as its own tools and kernel describe it. ``gpus`` are in BDF order."""

    SCHEMA: ClassVar[str] = "apiary.topology/v1"

    host: str
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    nics: tuple[Nic, ...] = ()
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    marks: tuple[Mark, ...] = ()
    starts: tuple[Start, ...] = ()

    def key(self, gpu: Gpu) -> str:
        """Return the GPU's key in links and placements: its BDF, `#partition` where shared."""
        return next(key for key, other in self.by_key.items() if other is gpu or other == gpu)

    @property
    def model(self) -> str | None:
        """Return the model that all GPUs have, None where they differ or nothing tells."""
        models = {gpu.model for gpu in self.gpus}
        return models.pop() if len(models) == 1 else None

    @property
    def by_key(self) -> dict[str, Gpu]:
        """Return the GPUs by key, in BDF order."""
        return dict(zip(gpu_keys(self.gpus), self.gpus, strict=True))

    def link(self, a: str, b: str) -> Link | None:
        """Return the link between two GPU keys, in either order, or None."""
        low, high = sorted((a, b))
        return next((link for link in self.links if link.a == low and link.b == high), None)


def gpu_keys(gpus: Sequence[Gpu]) -> list[str]:
    """Return each GPU's key: its BDF, `#partition` where shared, `GPU<n>` where it has no BDF."""
    shared = Counter(gpu.bdf for gpu in gpus)
    keys: list[str] = []
    for position, gpu in enumerate(gpus):
        if gpu.bdf is None:
            keys.append(f"GPU{position if gpu.smi_index is None else gpu.smi_index}")
        elif shared[gpu.bdf] > 1:
            keys.append(f"{gpu.bdf}#{gpu.partition}")
        else:
            keys.append(gpu.bdf)
    return keys
