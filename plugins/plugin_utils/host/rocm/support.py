# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether system, kernel, driver, userland and GPUs go together: AMD's matrices as findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...documents import knowledge
from ...findings import Finding, Severity
from ...gpus import gpu_facts, gpu_models
from ..facts import OsRelease
from .host import HostState
from .target import Target, driver_facts, support
from .types import Settings, parse

# Printable characters of ASCII alone: what is typed into a file of the package manager.
_ADDRESS = re.compile(r"(?:https?|file)://[!-~]+")
_KEY_ADDRESS = re.compile(r"(?:https?|file)://[!-~]+|/[ -~]+")
_GFX = re.compile(r"gfx[0-9a-z]+(?:-[0-9a-z]+)*")


def _refused(allowed: bool) -> Severity:
    return "warning" if allowed else "error"


def _source(entry: str) -> str:
    """Return the first address that an entry's source names."""
    known = support()["sources"]
    name = entry.split(",")[0].removeprefix("sources.")
    address: str = known.get(name, entry)
    return address


def unknown_system(release: OsRelease, host: str) -> Finding:
    """Refuse a system whose repositories are not known here."""
    systems = knowledge("host/rocm/systems.yml")["systems"].values()
    known = "; ".join(f"{one['name']} {', '.join(one['versions'])}" for one in systems)
    return Finding(
        "ROCM-OS-UNSUPPORTED",
        host,
        f"found {release.name or release.id} {release.version}, expected one whose "
        f"repositories are known here: {known}",
        source=support()["sources"]["rocm_10_0"],
    )


def settings_findings(settings: Settings, host: str) -> tuple[Finding, ...]:
    """Refuse settings that no host could be given."""
    return (
        *version_findings(settings, host),
        *_address_findings(settings, host),
        *_target_findings(settings, host),
    )


def _address_findings(settings: Settings, host: str) -> Iterator[Finding]:
    """Refuse what is no address: a second line of one would be a line of a repository file."""
    kinds = ("", "driver_", "graphics_", "extras_")
    forms = {f"{kind}repository_url": (_ADDRESS, "") for kind in kinds}
    forms |= dict.fromkeys(("key_url", "driver_key_url"), (_KEY_ADDRESS, " or a path"))
    for name, (form, more) in forms.items():
        value = getattr(settings, name)
        if value is not None and not form.fullmatch(value):
            yield Finding(
                "ROCM-URL",
                host,
                f"found rocm_{name} {value!r}, expected https://, http:// or file:// and an "
                f"address without spaces{more}",
                name=name,
            )


def _target_findings(settings: Settings, host: str) -> Iterator[Finding]:
    for gfx in settings.gfx_targets or ():
        if not _GFX.fullmatch(gfx):
            yield Finding(
                "ROCM-GFX", host, f"found GPU target {gfx!r}, expected a name such as gfx942"
            )


def version_findings(settings: Settings, host: str) -> Iterator[Finding]:
    """Refuse versions that are none, or of a series that is not known."""
    rocm = parse(settings.rocm_version)
    known = support()["series"]
    if rocm is None or (rocm.series not in known and not settings.allow_unsupported):
        yield Finding(
            "ROCM-VERSION",
            host,
            f"found ROCm {settings.rocm_version!r}, expected a release of {', '.join(known)}",
            source=support()["sources"]["rocm_10_0"],
        )
    if settings.driver_version is not None and parse(settings.driver_version) is None:
        yield Finding(
            "ROCM-VERSION",
            host,
            f"found driver {settings.driver_version!r}, expected a version such as 30.30.4",
        )


def findings(target: Target, state: HostState, guest: bool, host: str) -> tuple[Finding, ...]:
    """Return everything about this combination that a person should know."""
    found = [*_driver(target, host)]
    if target.series is not None:
        found += _system(target, target.series, host)
        found += _gpus(target, target.series, state, host)
    found += _minor(target, host)
    found += _kernels(target, state, host)
    found += _avoided(target, state, guest, host)
    return tuple(found)


def _driver(target: Target, host: str) -> Iterator[Finding]:
    settings = target.settings
    if not settings.driver:
        return
    if target.driver is None:
        yield Finding(
            "ROCM-DRIVER-UNKNOWN",
            host,
            f"found no driver that ROCm {target.rocm} is known to be published with, expected one",
        )
    elif target.series and target.driver.series not in target.series["drivers"]:
        yield Finding(
            "ROCM-DRIVER-PAIR",
            host,
            f"found driver {target.driver} for ROCm {target.rocm}, expected one of "
            + ", ".join(f"{one}.x" for one in target.series["drivers"]),
            source=_source(target.series["source"]),
            accepted=settings.allow_unsupported,
        )


def _system(target: Target, series: Any, host: str) -> Iterator[Finding]:
    system = target.system
    versions = series["systems"].get(system.id, {})
    if system.version in versions or system.major in versions:
        return
    known = ", ".join(
        f"{name} {version}" for name, each in series["systems"].items() for version in each
    )
    yield Finding(
        "ROCM-OS-UNSUPPORTED",
        host,
        f"found {system.name} {system.version}, expected a system that AMD supports with ROCm "
        f"{target.rocm.series}: {known}",
        source=_source(series["source"]),
        accepted=target.settings.allow_unsupported,
    )


def _minor(target: Target, host: str) -> Iterator[Finding]:
    """Refuse minor releases without a directory: it would be a 404, several steps later."""
    facts, system = driver_facts(target.driver), target.system
    if facts is None or not system.edition.get("minor"):
        return
    published = facts["el"]
    if system.version in published:
        return
    yield Finding(
        "ROCM-EL-MINOR",
        host,
        f"found {system.name} {system.version}, expected a minor release that driver "
        f"{target.driver} is published for: {', '.join(published)}",
        accepted=target.settings.allow_unsupported,
    )


def _gpus(target: Target, series: Any, state: HostState, host: str) -> Iterator[Finding]:
    settings, system = target.settings, target.system
    if not state.gpus:
        yield Finding(
            "ROCM-GPU-ABSENT",
            host,
            "found no AMD GPU on the PCI bus, expected one at least",
            accepted=settings.allow_unsupported,
        )
    for device in dict.fromkeys(gpu.device for gpu in state.gpus if gpu.model is None):
        yield Finding(
            "ROCM-GPU-UNSUPPORTED",
            host,
            f"found an AMD GPU 1002:{device}, expected an Instinct GPU by an id that is known",
            accepted=True,
        )
    name = target.rocm.series
    supporting = [model for model in gpu_models().values() if name in model.rocm.series]
    tested = [model for model in supporting if model.tested_on(name, system.id, system.major)]
    for model in map(gpu_facts, sorted({gpu.model for gpu in state.gpus if gpu.model})):
        if model not in supporting:
            yield Finding(
                "ROCM-GPU-UNSUPPORTED",
                host,
                f"found {model.name} ({model.gfx}), expected a GPU that ROCm {name} supports: "
                + ", ".join(sorted({each.gfx for each in supporting})),
                source=_source(series["source"]),
                accepted=settings.allow_unsupported,
            )
        elif system.id in series["systems"] and model not in tested:
            yield Finding(
                "ROCM-GPU-UNSUPPORTED",
                host,
                f"found {model.name} with {system.name} {system.version}, expected there one of "
                f"{', '.join(each.name for each in tested)}: AMD does not test the others with it",
                source=_source(series["source"]),
                accepted=True,
            )
    if "{gfx}" in "".join(target.stream_facts["packages"][settings.profile]) and not target.gfx:
        yield Finding(
            "ROCM-GFX",
            host,
            f"found no GPU target, expected one for the packages of profile {settings.profile}",
        )


def _kernels(target: Target, state: HostState, host: str) -> Iterator[Finding]:
    if target.series is None or not target.driver or state.running is None:
        return
    versions = target.series["systems"].get(target.system.id, {})
    known = versions.get(target.system.version, versions.get(target.system.major))
    listed = not known or state.running.startswith(tuple(known))
    # Of a kernel that is known to fail nobody needs to hear that it is not tested either.
    if not listed and not _not_built(target, state.running):
        yield Finding(
            "ROCM-KERNEL-UNSUPPORTED",
            host,
            f"found kernel {state.running}, expected one of "
            + ", ".join(f"{one}x" for one in known),
            source=_source(target.series["source"]),
            minor=True,
        )


def _avoided(target: Target, state: HostState, guest: bool, host: str) -> Iterator[Finding]:
    """Refuse drivers that are known to fail: with these GPUs, or to be built for a kernel."""
    allowed = target.settings.allow_unsupported
    for model in sorted({gpu.model for gpu in state.gpus if gpu.model}):
        drivers = gpu_facts(model).drivers
        for one in drivers.avoid:
            if _begins(target, one.driver) and (guest or not one.guest):
                yield Finding(
                    "ROCM-DRIVER-AVOID",
                    host,
                    f"found driver {target.driver}, expected another: it fails in {one.message}",
                    source=drivers.source,
                    accepted=allowed,
                    instead=one.instead,
                )
    for kernel in state.kernels:
        source = _not_built(target, kernel)
        running = kernel == state.running
        if source:
            yield Finding(
                "ROCM-KERNEL-UNSUPPORTED",
                host,
                f"found kernel {kernel}{' running' if running else ''}, expected none that driver "
                f"{target.driver} is known not to build for",
                source=source,
                accepted=allowed,
                # The others stop nothing until they are booted, and then there is no driver.
                minor=not running,
            )


def _known_failures(target: Target) -> Iterator[Any]:
    """Yield what is known to fail with this driver."""
    for one in support()["avoid"]:
        if _begins(target, one["driver"]):
            yield one


def _begins(target: Target, prefixes: Iterable[str]) -> bool:
    """Return whether the driver's version begins with one of these."""
    driver = f"{target.driver}."
    return any(driver.startswith(f"{prefix.rstrip('.')}.") for prefix in prefixes)


def _not_built(target: Target, kernel: str) -> str | None:
    """Return who says that this driver can't be built for a kernel, or None."""
    for one in _known_failures(target):
        if kernel.startswith(tuple(one.get("kernels", ()))):
            source: str = one["source"]
            return source
    return None
