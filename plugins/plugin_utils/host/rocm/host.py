# SPDX-License-Identifier: GPL-3.0-or-later

"""What evidence says of a host's packages, kernels, driver and GPUs; nothing is judged here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...documents import knowledge
from ...evidence.types import Evidence
from ...gpus import gpu_facts, model_of
from ..facts import kernel_arguments, kernel_release, output
from .types import kernel_order

_DEVICE = re.compile(r"/sys/bus/pci/devices/([0-9a-f:.]+)/modalias")
_GPU = re.compile(r"pci:v00001002d0000([0-9A-F]{4})sv.*bc(?:03|12)sc")
_STATUS = re.compile(r"amdgpu(?:/|, )([^,\s]+)(?:, ([^,\s]+), \S+)?: (\w+)")
_DKMS_DIRECTORY = re.compile(r"/var/lib/dkms/amdgpu/\d[\w.+~-]{0,100}")
_BLACKLIST = re.compile(
    r"(?m)^[ \t]*(?:blacklist\s+amdgpu\b|install\s+amdgpu\s+/bin/(?:true|false))"
)
# Of dpkg's states: half-configured, unpacked, half-installed, triggers awaited and pending.
_UNFINISHED = ("F", "U", "H", "W", "t")


@dataclass(frozen=True)
class Gpu:
    """An AMD GPU on the bus; the model is None for an id that knowledge does not have."""

    address: str
    device: str
    model: str | None
    gfx: str | None


@dataclass(frozen=True)
class Build:
    """One line of `dkms status`: kernel None where the source is only added."""

    version: str
    kernel: str | None
    state: str


@dataclass(frozen=True)
class Loaded:
    """The driver in the running kernel; the in-box one tells no version."""

    version: str | None
    source: str | None


@dataclass(frozen=True)
class Node:
    """A device node: its octal mode, its owner's and its group's name."""

    path: str
    mode: str
    group: str


@dataclass(frozen=True)
class HostState:
    """The host as the decisions of this package see it.

    ``packages`` maps installed packages to their versions, epoch and all. ``broken`` are those that
    dpkg could not finish: of them, and of packages that are not looked at otherwise. ``kernels``
    are the bootable ones, newest first, the running among them. ``enrolled`` is None where Secure
    Boot is off, or nothing told. ``repositories`` is the package manager's own list of them.
    ``forgotten`` are directories of DKMS whose driver is gone.
    ``offered_headers`` are those of the running kernel and of its flavours that apt knows of.
    """

    packages: Mapping[str, tuple[str, ...]]
    broken: tuple[str, ...]
    held: tuple[str, ...]
    kernels: tuple[str, ...]
    running: str | None
    with_headers: frozenset[str]
    builds: tuple[Build, ...]
    loaded: Loaded | None
    module: Mapping[str, str]
    secure_boot: bool
    enrolled: bool | None
    boot_mib: int | None
    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]
    blacklisted: str | None
    repositories: str
    built: Mapping[str, float]
    forgotten: tuple[str, ...]
    offered_headers: tuple[str, ...]
    ramdisks: Mapping[str, float]

    def version(self, name: str) -> str | None:
        """Return a package's newest installed version, or None."""
        return max(self.packages.get(name, ()), key=kernel_order, default=None)


def read(evidence: Evidence) -> HostState:
    """Return what the evidence tells of the host."""
    running = kernel_release(evidence)
    secure = "SecureBoot enabled" in output(evidence, "secure_boot")
    return HostState(
        packages=dict(_packages(evidence)),
        broken=_broken(evidence),
        held=_held(evidence),
        kernels=_kernels(evidence, running),
        running=running,
        with_headers=frozenset(
            line.split("/")[3] for line in _lines(evidence, "kernel_headers") if line.count("/") > 3
        ),
        builds=tuple(
            Build(found[1], found[2], found[3])
            for line in _lines(evidence, "dkms_status")
            if (found := _STATUS.match(line))
        ),
        loaded=_loaded(evidence),
        module={
            name: text
            for name in ("version", "source", "file", "signer")
            if (text := output(evidence, f"driver_{name}").strip())
        },
        secure_boot=secure,
        enrolled=_enrolled(evidence) if secure else None,
        boot_mib=_boot_mib(evidence),
        nodes=tuple(
            Node(words[0], words[1], words[3])
            for line in _lines(evidence, "device_nodes")
            if len(words := line.split()) == 4
        ),
        gpus=_gpus(evidence),
        blacklisted=_blacklisted(evidence),
        repositories=output(evidence, "dnf_repositories"),
        built=dict(_times(evidence, "built_drivers")),
        forgotten=_forgotten(evidence),
        offered_headers=tuple(
            line.split(" ")[0] for line in _lines(evidence, "apt_kernel_headers")
        ),
        ramdisks=dict(_times(evidence, "initial_ramdisks")),
    )


def _lines(evidence: Evidence, name: str) -> list[str]:
    return [line.strip() for line in output(evidence, name).splitlines() if line.strip()]


def _packages(evidence: Evidence) -> Iterator[tuple[str, tuple[str, ...]]]:
    found: dict[str, list[str]] = {}
    for line in _lines(evidence, "dpkg_packages") + _lines(evidence, "rpm_packages"):
        state, tab, rest = line.partition("\t")
        name, _tab, version = rest.partition("\t")
        # The first letter is what is wanted; of what is, n is nothing and c an old configuration.
        if tab and state.strip()[1:2] in ("i", *_UNFINISHED):
            found.setdefault(name, []).append(version)
    for name, versions in found.items():
        yield name, tuple(versions)


def _broken(evidence: Evidence) -> tuple[str, ...]:
    """Return packages whose installation did not end, of the states and of dpkg's own audit."""
    names = []
    for line in _lines(evidence, "dpkg_packages"):
        state, _tab, rest = line.partition("\t")
        if state.strip()[1:2] in _UNFINISHED or state.strip()[2:3] == "R":
            names.append(rest.partition("\t")[0])
    names += [
        line.split()[0]
        for line in output(evidence, "dpkg_audit").splitlines()
        if re.match(r" [a-z0-9]", line)
    ]
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names))


def _held(evidence: Evidence) -> tuple[str, ...]:
    held = [line.partition(":")[0] for line in _lines(evidence, "apt_holds")]
    for line in evidence.files.get("/etc/dnf/plugins/versionlock.list", "").splitlines():
        found = re.match(r"(?!#|!)(.+?)-(?:\d+:)?[^-\s]+-[^-\s]+$", line.strip())
        held += [found[1]] if found else []
    return tuple(dict.fromkeys(held))


def _kernels(evidence: Evidence, running: str | None) -> tuple[str, ...]:
    names = [line.partition("/vmlinuz-")[2] for line in _lines(evidence, "kernels")]
    known = set(_lines(evidence, "kernel_modules"))
    # A copy of an image, such as vmlinuz-6.8.0.bak, has no modules: nothing can be built for it.
    bootable = {
        name
        for name in names
        if name and "rescue" not in name and (not known or f"/lib/modules/{name}" in known)
    }
    # A kernel that runs can be booted; a container has no /boot of its own.
    return tuple(sorted(bootable | ({running} if running else set()), key=kernel_order)[::-1])


def _loaded(evidence: Evidence) -> Loaded | None:
    state, version, source = (
        evidence.files.get(f"/sys/module/amdgpu/{name}", "").strip()
        for name in ("initstate", "version", "srcversion")
    )
    return Loaded(version or None, source or None) if state or version or source else None


def _enrolled(evidence: Evidence) -> bool:
    """Say whether one of the keys that DKMS signs with is enrolled."""
    said = output(evidence, "mok_shim") + output(evidence, "mok_dkms")
    return "is already enrolled" in said


def _boot_mib(evidence: Evidence) -> int | None:
    for line in _lines(evidence, "boot_space")[1:]:
        words = line.split()
        if len(words) >= 6 and words[3].isdigit():
            return int(words[3]) // 1024
    return None


def _gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    gpus = []
    for path, alias in sorted(evidence.files.items()):
        device, gpu = _DEVICE.fullmatch(path), _GPU.match(alias)
        if device and gpu:
            name = gpu[1].lower()
            model, _virtual = model_of(name)
            gpus.append(Gpu(device[1], name, model, gpu_facts(model).gfx or None))
    return tuple(gpus)


def _blacklisted(evidence: Evidence) -> str | None:
    """Return what keeps the driver from being loaded at boot."""
    for word in kernel_arguments(evidence):
        name, _equals, value = word.partition("=")
        if name in ("modprobe.blacklist", "module_blacklist") and "amdgpu" in value.split(","):
            return f"{word} on the kernel command line"
    for path, text in sorted(evidence.files.items()):
        if path.startswith("/etc/modprobe.d/") and _BLACKLIST.search(text):
            return path
    return None


def _forgotten(evidence: Evidence) -> tuple[str, ...]:
    """Return DKMS's directories of a driver that have no dkms.conf: their package is gone."""
    listed = _lines(evidence, "dkms_directories")
    directories = [path for path in listed if _DKMS_DIRECTORY.fullmatch(path)]
    return tuple(path for path in sorted(directories) if f"{path}/source/dkms.conf" not in listed)


def _times(evidence: Evidence, name: str) -> Iterator[tuple[str, float]]:
    for line in _lines(evidence, name):
        path, _space, time = line.rpartition(" ")
        if path and re.fullmatch(r"\d+(\.\d+)?", time):
            yield path, float(time)


def boot_minimum() -> int:
    """Return how many MiB /boot must have free."""
    return int(knowledge("host/rocm/systems.yml")["boot_space_mib"])
