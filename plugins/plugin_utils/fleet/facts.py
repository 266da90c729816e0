# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host shares with its peers, of its evidence and topology."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..documents import knowledge
from ..evidence.types import Evidence
from ..findings import ApiaryError
from ..host.facts import is_guest, kernel_release, os_release
from ..topology.types import Gpu, Topology, gpu_keys
from .types import Health, HostFacts

# The driver that comes with a kernel has no version of its own.
IN_BOX = "in-box"
_MODULE = "/sys/module/amdgpu"
_BIOS = "/sys/class/dmi/id/bios"
_ROCM = "/opt/rocm/.info/version"
_PACKAGE = re.compile(r"^ii *\trocm-core\t(?:\d+:)?(\d+\.\d+\.\d+)", re.MULTILINE)
_TOOL = re.compile(r"ROCm version: *(\d+\.\d+\.\d+)")
_FIRMWARE = re.compile(
    r"^/sys/bus/pci/devices/([^/]+)/(?:fw_version/(\w+)_fw_version|(vbios)_version)$"
)
_NOTHING = re.compile(r"(?:0x)?0*$|N/A$", re.IGNORECASE)
_ERRORS = re.compile(r"^/sys/.*/ras/\w+_err_count$")
_UNCORRECTABLE = re.compile(r"\bue:\s*(\d+)")
# Of a topology's findings, those of a GPU that is missing, or cannot be used, or forgets.
_SICK = frozenset(
    {"TOPO-GPU-MISSING", "TOPO-GPU-UNUSABLE", "TOPO-MEMORY-ERRORS", "TOPO-PARTITION-COUNT"}
)


def facts_of(evidence: Evidence, topology: Topology) -> HostFacts:
    """Return the facts of one host; what evidence does not have is None or ().

    ``topology`` is that of the same evidence. GPUs that cannot be used are not counted;
    partitions are, as everywhere in a topology. ``vram_bytes`` is that of all of them together.
    """
    usable = [gpu for gpu in topology.gpus if gpu.healthy is not False]
    sizes = [gpu.vram_bytes for gpu in usable]
    return HostFacts(
        gpu_model=_same(gpu.model for gpu in topology.gpus),
        gpus=len(usable),
        vram_bytes=sum(size or 0 for size in sizes) if sizes and all(sizes) else None,
        hives=_hives(topology),
        numa_nodes=len(topology.numa_nodes) or None,
        partitions=_partitions(usable),
        driver=_driver(evidence),
        rocm=_rocm(evidence),
        kernel=kernel_release(evidence) or _uname(evidence),
        os=_os(evidence),
        bios=_bios(evidence),
        firmware=_firmware(evidence),
        health=_health(evidence, topology),
    )


def _same(values: Iterable[str | None]) -> str | None:
    """Return the one value that all have, or None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _hives(topology: Topology) -> tuple[int, ...]:
    """Return how many devices each set of xGMI-linked ones has; () where xGMI links none."""
    device = {
        key: gpu.bdf or key for key, gpu in zip(gpu_keys(topology.gpus), topology.gpus, strict=True)
    }
    hive = {name: {name} for name in device.values()}
    for link in topology.links:
        a, b = hive[device[link.a]], hive[device[link.b]]
        if link.type == "xgmi" and a is not b:
            a |= b
            for name in b:
                hive[name] = a
    sizes = sorted(map(len, {frozenset(one) for one in hive.values()}), reverse=True)
    return tuple(sizes) if sizes and sizes[0] > 1 else ()


def _partitions(gpus: Iterable[Gpu]) -> str | None:
    """Return the modes of the GPUs, joined by + where they differ; None where one is unknown."""
    modes = {(gpu.compute_partition, gpu.memory_partition) for gpu in gpus}
    if not modes or any(None in mode for mode in modes):
        return None
    return "+".join(sorted(f"{compute}/{memory}" for compute, memory in modes))


def _text(evidence: Evidence, path: str) -> str | None:
    return evidence.files.get(path, "").strip() or None


def _driver(evidence: Evidence) -> str | None:
    version = _text(evidence, f"{_MODULE}/version")
    if version is None and _text(evidence, f"{_MODULE}/initstate"):
        # Where sysfs told of the module, it would have told of its version, too.
        return IN_BOX
    return version or _told_driver(evidence)


def _told_driver(evidence: Evidence) -> str | None:
    """Return the driver's version as rocm-smi prints it, for evidence without sysfs."""
    for name, said in evidence.commands.items():
        if not name.startswith("rocm_smi_identity"):
            continue
        try:
            document = json.loads(said.stdout)
        except ValueError:
            continue
        system = document.get("system") if isinstance(document, Mapping) else None
        if isinstance(system, Mapping) and system.get("Driver version"):
            return str(system["Driver version"])
    return None


def _rocm(evidence: Evidence) -> str | None:
    """Return ROCm's version, 7.2.4: of its own file, its packages or its tool."""
    told = _text(evidence, _ROCM)
    if told:
        # Builds have a number behind: 7.2.4-93.
        return told.partition("-")[0]
    for name, form in (("packages", _PACKAGE), ("amd_smi_version", _TOOL)):
        for label, said in sorted(evidence.commands.items()):
            found = form.search(said.stdout) if name in label else None
            if found:
                return found[1]
    return None


def _uname(evidence: Evidence) -> str | None:
    """Return the kernel's release, of `uname -srvm`."""
    said = evidence.commands.get("uname")
    words = said.stdout.split() if said else []
    return words[1] if len(words) > 1 else None


def _os(evidence: Evidence) -> str | None:
    try:
        release = os_release(evidence)
    except ApiaryError:
        return None
    return f"{release.id} {release.version}".strip()


def _bios(evidence: Evidence) -> str | None:
    version, date = (_text(evidence, f"{_BIOS}_{name}") for name in ("version", "date"))
    return f"{version} ({date})" if version and date else version


def _firmware(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Return component and version of all AMD GPUs; a component that is not loaded is left out."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in evidence.files.items():
        match = _FIRMWARE.match(path)
        if match and not _NOTHING.match(text.strip()):
            found[match[2] or match[3]].add(text.strip())
    return tuple(sorted((name, version) for name, each in found.items() for version in each))


def _health(evidence: Evidence, topology: Topology) -> Health:
    codes = {finding.code for finding in topology.findings}
    given = is_guest(evidence) or any(gpu.virtual_function for gpu in topology.gpus)
    # A guest has the GPUs that it was given.
    sick = _SICK - {"TOPO-GPU-MISSING"} if given else _SICK
    if (
        codes & sick
        or any(gpu.healthy is False for gpu in topology.gpus)
        or _uncorrectable(evidence)
    ):
        return "sick"
    if topology.gpus:
        return "healthy"
    # Without its driver nobody knows how a GPU is; with it, one would show.
    loaded = _text(evidence, f"{_MODULE}/initstate") == "live"
    return "sick" if loaded and "TOPO-NO-GPUS" in codes else "unknown"


def _uncorrectable(evidence: Evidence) -> bool:
    """Say whether a block of a GPU counted more uncorrectable errors than AMD accepts."""
    limit: int = knowledge("host/acceptance.yml")["uncorrectable_errors"]["limit"]
    return any(
        (found := _UNCORRECTABLE.search(text)) is not None and int(found[1]) > limit
        for path, text in evidence.files.items()
        if _ERRORS.match(path)
    )
