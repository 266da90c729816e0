# SPDX-License-Identifier: GPL-3.0-or-later

"""knowledge/gpus/: one file a GPU model, with all that is specific to it; every part reads it here.

A device is what the driver makes one of: an MI250X board is two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from .documents import KNOWLEDGE, from_document, knowledge

FOLDER = "gpus"
# Partitions a device becomes; CPX makes one of each XCD. Source:
# https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/gpu-partitioning/index.html
COMPUTE_PARTITIONS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


@dataclass(frozen=True)
class Memory:
    """Memory of one unpartitioned device in GiB, and its nominal bandwidth in GB/s."""

    source: str = ""
    gib: int | None = None
    gb_s: int | None = None


@dataclass(frozen=True)
class Links:
    """What links its devices.

    ``mesh`` are the devices of one baseboard that are all linked to each other by xGMI, None where
    boards differ (bridges, PCIe cards); ``xgmi_mb_s`` is the nominal bandwidth of one xGMI link as
    the driver reports it, 0 where it reports none; ``pcie_*`` what the PCIe link has to train at.
    """

    source: str = ""
    mesh: int | None = None
    xgmi_mb_s: int = 0
    pcie_gt_s: float | None = None
    pcie_lanes: int = 0


@dataclass(frozen=True)
class Partitions:
    """``xcds``: accelerator dies of a device, which are its partitions in CPX mode."""

    source: str = ""
    xcds: int | None = None


@dataclass(frozen=True)
class HostNeeds:
    """The factory's power cap of one GPU, and the system memory of a host that has eight."""

    source: str = ""
    power_cap_watts: int | None = None
    memory_tib: float | None = None


@dataclass(frozen=True)
class Acceptance:
    """GB/s by figure of a test: less than ``minimum`` fails, less than ``usual`` is a warning."""

    source: str = ""
    minimum: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of alerts by name that differ from those of knowledge/telemetry/settings.yml."""

    source: str = ""
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuning:
    """Settings of knowledge/host/tuning.yml that only some models get, and this one does."""

    source: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """``rccl_channels``: the least number of channels that AMD advises, 0 for RCCL's own."""

    source: str = ""
    rccl_channels: int = 0


@dataclass(frozen=True)
class Rocm:
    """Systems that AMD tests the model on, by the series of ROCm that support it.

    A system is the ID of os-release, or that and its major version: "debian 12".
    """

    source: str = ""
    series: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class AvoidedDriver:
    """Driver versions, as beginnings, that fail with this model; ``guest``: in guests only."""

    driver: tuple[str, ...]
    message: str
    instead: str
    guest: bool = False


@dataclass(frozen=True)
class Drivers:
    """What is known of drivers with this model."""

    source: str = ""
    avoid: tuple[AvoidedDriver, ...] = ()


@dataclass(frozen=True)
class GpuModel:
    """A GPU model.

    ``devices`` are the PCI device ids of vendor 1002, ``virtual_functions`` those that it has as an
    SR-IOV guest; ``dies`` the devices that one package is.
    """

    name: str
    gfx: str
    devices: tuple[str, ...]
    source: str
    virtual_functions: tuple[str, ...] = ()
    dies: int = 1
    memory: Memory = field(default_factory=Memory)
    links: Links = field(default_factory=Links)
    partitions: Partitions = field(default_factory=Partitions)
    host: HostNeeds = field(default_factory=HostNeeds)
    acceptance: Acceptance = field(default_factory=Acceptance)
    thresholds: Thresholds = field(default_factory=Thresholds)
    tuning: Tuning = field(default_factory=Tuning)
    engine: Engine = field(default_factory=Engine)
    rocm: Rocm = field(default_factory=Rocm)
    drivers: Drivers = field(default_factory=Drivers)

    def partitions_in(self, mode: str | None) -> int | None:
        """Return how many partitions a device becomes in a compute mode, None where unknown."""
        return self.partitions.xcds if mode == "CPX" else COMPUTE_PARTITIONS.get(mode or "")

    def tested_on(self, series: str, system: str, major: str) -> bool:
        """Return whether AMD tests the model with a series of ROCm on an operating system."""
        return bool({system, f"{system} {major}"} & set(self.rocm.series.get(series, ())))


# What is known of a GPU whose id no file has.
UNKNOWN = GpuModel(name="", gfx="", devices=(), source="")


@cache
def gpu_models() -> Mapping[str, GpuModel]:
    """Return every model by name, in the files' order."""
    names = sorted(path.name for path in (KNOWLEDGE / FOLDER).glob("*.yml"))
    models = (from_document(GpuModel, knowledge(f"{FOLDER}/{name}"), name) for name in names)
    return {model.name: model for model in models}


def gpu_facts(name: str | None) -> GpuModel:
    """Return what knowledge has of a model; of one that it has not, nothing."""
    return gpu_models().get(name or "", UNKNOWN)


@cache
def model_of(device_id: str | None) -> tuple[str | None, bool | None]:
    """Return model and whether the id is a virtual function's; by device id, never by name."""
    for name, model in gpu_models().items():
        if device_id in model.devices:
            return name, False
        if device_id in model.virtual_functions:
            return name, True
    return None, None
