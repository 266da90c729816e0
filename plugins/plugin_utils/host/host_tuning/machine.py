# SPDX-License-Identifier: GPL-3.0-or-later

"""What kind of machine a host is, as far as its tuning depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...evidence.types import Evidence
from ...gpus import gpu_facts, gpu_models, model_of
from ...topology.observation import Device
from ...topology.readers import pci
from .. import facts
from . import cmdline

Platform = Literal["auto", "bare_metal", "guest"]
_CPUS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
# Where our words for the next boot are kept: in GRUB's drop-in, which has the last name so that it
# comes after what others set, or in the record of what was changed in files of others.
DROP_IN = "/etc/default/grub.d/zz-apiary.cfg"
RECORD = "/var/lib/apiary/kernel-arguments.json"
KEPT = (DROP_IN, RECORD)
_KUBELET = ("/var/lib/kubelet/config.yaml", "/etc/systemd/system/kubelet.service")


@dataclass(frozen=True)
class Gpu:
    """One GPU on the bus, with what its link was trained at; ``None`` is unknown."""

    bdf: str
    model: str | None
    vram_bytes: int | None
    speed: float | None
    lanes: int | None


@dataclass(frozen=True)
class Machine:
    """A host: ``cpu`` is amd, intel or None; ``running`` the words it was booted with.

    ``configured`` is the text in which an earlier run kept our words for the next boot.
    """

    name: str
    guest: bool
    container: bool
    kubernetes: bool
    serving: bool
    cpu: str | None
    gpus: tuple[Gpu, ...]
    lscpu: Mapping[str, str]
    running: cmdline.Words
    configured: str = ""

    @property
    def models(self) -> frozenset[str]:
        """The models of its GPUs, as far as they are known."""
        return frozenset(gpu.model for gpu in self.gpus if gpu.model)

    def excludes(self, name: str, entry: Mapping[str, Any]) -> str | None:
        """Return why a setting does not apply here, or None where it does."""
        if self.guest and entry.get("platforms") == ["bare_metal"]:
            return "the host is a virtual machine"
        wanted = [one.name for one in gpu_models().values() if name in one.tuning.settings]
        if entry.get("by_model") and self.models and not self.models & set(wanted):
            return f"for {', '.join(wanted)}; the host has {', '.join(sorted(self.models))}"
        if entry.get("cpu") and self.cpu and entry["cpu"] != self.cpu:
            return f"the host's CPUs are not {entry['cpu'].title()}'s"
        if entry.get("cpu") and self.cpu is None:
            return "lscpu does not tell whose CPUs these are"
        if entry.get("kubernetes") and not self.kubernetes:
            return "the host is no Kubernetes node"
        if entry.get("provisioning") and self.serving and self._is_new(entry["argument"]):
            return "replicas serve already, and names of NICs could change"
        return None

    def _is_new(self, word: str) -> bool:
        """Say whether a word is neither in effect nor put there for the next boot by us."""
        return not cmdline.has(self.running, word) and word not in self.configured


def machine(evidence: Evidence, platform: Platform) -> Machine:
    """Return what evidence tells of a host; ``platform`` overrides whether it is a guest."""
    said = facts.command(evidence, "lscpu_summary")
    lines = (line.partition(":") for line in (said.stdout if said else "").splitlines())
    lscpu = {name.strip(): value.strip() for name, _colon, value in lines}
    found, slots = pci.parse(evidence.files, evidence.links)
    guest = facts.is_guest(evidence) if platform == "auto" else platform == "guest"
    virtual = facts.virtualization(evidence)
    return Machine(
        name=evidence.host,
        guest=guest,
        container=virtual not in (None, "none") and not facts.is_guest(evidence),
        kubernetes=any(path in evidence.files for path in _KUBELET),
        serving=bool(facts.serving_replicas(evidence)),
        cpu=_CPUS.get(lscpu.get("Vendor ID", "")),
        gpus=tuple(map(_gpu, slots, found.devices)),
        lscpu=lscpu,
        running=cmdline.split(evidence.files.get("/proc/cmdline", "")),
        configured="".join(evidence.files.get(path, "") for path in KEPT),
    )


def _gpu(slot: pci.Slot, device: Device) -> Gpu:
    model, _virtual = model_of(device.device_id)
    nominal = gpu_facts(model).memory.gib
    return Gpu(
        bdf=slot.bdf,
        model=model,
        vram_bytes=device.vram_bytes or (nominal * 2**30 if nominal else None),
        speed=slot.link_speed,
        lanes=slot.link_width,
    )
