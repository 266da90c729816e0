# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be installed where: the settings, looked up in what AMD publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...documents import knowledge
from ..facts import OsRelease
from .host import HostState
from .types import (
    Family,
    PackageManager,
    Settings,
    Stream,
    Version,
    is_current_stream,
    module_of,
    parse,
)

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """The operating system as AMD's repositories know it; ``edition`` is its entry by version."""

    id: str
    version: str
    name: str
    family: Family
    facts: Facts
    edition: Facts
    family_facts: Facts

    @property
    def package_manager(self) -> PackageManager:
        """The package manager of the family."""
        manager: PackageManager = self.family_facts["package_manager"]
        return manager

    @property
    def major(self) -> str:
        """The version up to its first dot."""
        return self.version.partition(".")[0]

    @property
    def release(self) -> str:
        """The release in the driver's directory: 9.6, but 8 and 10."""
        return self.version if self.edition.get("minor") else self.major


@dataclass(frozen=True)
class Target:
    """What is asked, completed: versions, stream, GPU targets. Unknown is None."""

    settings: Settings
    system: System
    rocm: Version
    stream: Stream
    series: Facts | None
    driver: Version | None
    gfx: tuple[str, ...]

    @property
    def stream_facts(self) -> Facts:
        """What the stream's repository and packages are."""
        facts: Facts = streams()[self.stream]
        return facts

    @property
    def module(self) -> str | None:
        """The version that the driver reports, where known."""
        known = driver_facts(self.driver)
        return known.get("module") if known else None

    def packages(self) -> tuple[str, ...]:
        """Return the names of the userland packages of the profile, and of burn-in's programs."""
        names: list[str] = []
        wanted = self.stream_facts["packages"][self.settings.profile]
        for name in (*wanted, *(self.stream_facts["burn_in"] if self.settings.burn_in else ())):
            for gfx in self.gfx if "{gfx}" in name else ("",):
                names.append(name.format(series=self.rocm.series, gfx=gfx))
        return tuple(dict.fromkeys(names))

    def extras(self) -> tuple[str, ...]:
        """Return the packages of burn-in whose versions are not ROCm's."""
        names = self.stream_facts.get("extras", {}).get("burn_in", ())
        major = self.rocm.major
        return tuple(name.format(major=major) for name in names if self.settings.burn_in)

    def userland_glob(self) -> str:
        """Return the versions of userland packages that will do."""
        return f"{self.rocm}-*" if self.stream == "therock" else f"*.{self.rocm.token}-*"

    def is_userland(self, name: str, version: str) -> bool:
        """Say whether an installed package is of this stream (and series), whatever its version."""
        if self.stream == "therock":
            return name.startswith("amdrocm") and self.rocm.series in name
        return is_legacy(name, version)


def streams() -> Facts:
    """Return what knowledge has on AMD's repositories."""
    facts: Facts = knowledge("host/rocm/streams.yml")
    return facts


def support() -> Facts:
    """Return AMD's compatibility matrices."""
    facts: Facts = knowledge("host/rocm/support.yml")
    return facts


def driver_facts(driver: Version | None) -> Facts | None:
    """Return what knowledge has on a driver's series."""
    facts: Facts | None = support()["drivers"].get(driver.series) if driver else None
    return facts


def driver_names() -> tuple[str, ...]:
    """Return the packages of the driver and what comes with it."""
    facts = streams()["driver"]
    return (*facts["packages"], *facts["others"])


def is_legacy(name: str, version: str) -> bool:
    """Say whether an installed package is of the legacy userland: its version has ROCm's in it."""
    if name.startswith(("amdgpu", "amdrocm", "libdrm")):
        return False
    known = module_of(version)
    return known is not None


def system_of(release: OsRelease) -> System | None:
    """Return the system, or None where its repositories are not known here."""
    known = knowledge("host/rocm/systems.yml")
    facts = known["systems"].get(release.id)
    if facts is None:
        return None
    edition = facts["versions"].get(release.version) or facts["versions"].get(release.major)
    if edition is None:
        return None
    family: Family = facts["family"]
    return System(
        release.id,
        release.version,
        facts["name"],
        family,
        facts,
        edition,
        known["families"][family],
    )


def complete(settings: Settings, system: System, state: HostState, rocm: Version) -> Target:
    """Return what the settings mean on this host."""
    series = support()["series"].get(rocm.series)
    driver = parse(settings.driver_version) if settings.driver_version else None
    if settings.driver and not settings.driver_version and series:
        paired = series["pairs"].get(str(rocm))
        driver = parse(paired) if paired else None
    found = dict.fromkeys(gpu.gfx for gpu in state.gpus if gpu.gfx)
    return Target(
        settings=settings,
        system=system,
        rocm=rocm,
        stream="therock" if is_current_stream(rocm) else "legacy",
        series=series,
        driver=driver if settings.driver else None,
        gfx=tuple(sorted(found)) if settings.gfx_targets is None else settings.gfx_targets,
    )
