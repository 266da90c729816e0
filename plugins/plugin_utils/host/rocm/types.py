# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `rocm` requests and is to do, and AMD's versions in addresses and packages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from ..types import ConcernPlan

Family = Literal["debian", "redhat"]
PackageManager = Literal["apt", "dnf"]
Stream = Literal["legacy", "therock"]
Profile = Literal["serving", "native", "full"]
State = Literal["present", "absent"]

# A command as data: the role runs it, in this order, without a shell.
Argv = tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """What is asked. Versions are AMD's: rocm_version "7.2.4", driver_version "30.30.4".

    ``driver_version`` None is the driver AMD pairs with the userland. The URLs are directories
    that mirror AMD's: everything that AMD's own path adds for the operating system is appended.
    ``update_kernel`` lets the newest kernel be installed where repositories have no headers of the
    running one any more. ``leave_packages`` are names or globs of installed packages that stay.
    ``extra_repositories`` lets those of the distribution be enabled that AMD's packages need.
    ``burn_in`` adds the programs of acceptance's tests that the stream's repository has.
    Keys are named by their 40 hexadecimal digits; ``key_*`` is the userland repository's key,
    ``driver_key_*`` the driver's, each taken from what AMD publishes where None.
    """

    rocm_version: str = "7.2.4"
    driver_version: str | None = None
    profile: Profile = "serving"
    driver: bool = True
    repository_url: str | None = None
    driver_repository_url: str | None = None
    graphics_repository_url: str | None = None
    extras_repository_url: str | None = None
    key_url: str | None = None
    key_fingerprint: str | None = None
    driver_key_url: str | None = None
    driver_key_fingerprint: str | None = None
    gfx_targets: tuple[str, ...] | None = None
    allow_unsupported: bool = False
    remove_legacy: bool = False
    hold_kernel: bool = False
    update_kernel: bool = False
    extra_repositories: bool = True
    burn_in: bool = False
    leave_packages: tuple[str, ...] = ()
    state: State = "present"


@dataclass(frozen=True)
class Key:
    """A signing key: where it comes from, where it goes, the primary key it has to be.

    ``format`` is what the file at ``path`` holds: "binary" (dearmored) for apt, "armored" for rpm.
    """

    url: str
    path: str
    fingerprint: str
    format: Literal["armored", "binary"]


@dataclass(frozen=True)
class Package:
    """A package and the versions that will do: a glob in the package manager's form, or None.

    ``spec`` is what is asked of the package manager: `name=1:6.16.13.30300400-*` for apt,
    `name-6.16.13.30300400-*` for dnf, the bare name if any version will do.
    """

    name: str
    version: str | None
    spec: str


@dataclass(frozen=True)
class Kernel:
    """A kernel the host can boot: whether it runs now, and what DKMS needs to build for it."""

    release: str
    running: bool
    headers: bool
    dkms: bool  # the driver is installed for it, in the wanted version


@dataclass(frozen=True)
class Offer:
    """What is done for a kernel where repositories have all of ``packages``, and not otherwise."""

    kernel: str
    packages: tuple[str, ...]
    dkms: tuple[Argv, ...] = ()
    initramfs: Argv | None = None


@dataclass(frozen=True)
class RocmPlan(ConcernPlan):
    """What to do, in the order of the fields from ``repair`` to ``initramfs``.

    ``packages`` and ``prerequisites`` are all that is wanted; ``missing`` are the specs, of both,
    that the host does not have yet in that version; ``optional`` is for kernels whose packages
    repositories need not have. Empty ``repair``, ``enable``, ``missing``,
    ``remove``, ``hold``, ``unhold``, ``dkms``, ``initramfs`` None: nothing to do there.
    ``disruptive`` tells what would disturb GPU work that runs now (it is not a reboot reason);
    ``after_reboot`` are the codes of checks that fail now and that the reboot makes pass, or the
    unit that loads a driver which is blacklisted at boot. ``driver_version`` is what the role
    telemetry watches by.
    """

    package_manager: PackageManager = "apt"
    driver_version: str | None = None
    repair: tuple[Argv, ...] = ()
    remove: tuple[str, ...] = ()
    unhold: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    enable: tuple[Argv, ...] = ()
    prerequisites: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    missing: tuple[str, ...] = ()
    optional: tuple[Offer, ...] = ()
    hold: tuple[str, ...] = ()
    dkms: tuple[Argv, ...] = ()
    initramfs: Argv | None = None
    disruptive: tuple[str, ...] = ()
    after_reboot: tuple[str, ...] = ()


_FORM = re.compile(r"(\d{1,3})\.(\d{1,2})(?:\.(\d{1,2}))?")


@dataclass(frozen=True, order=True)
class Version:
    """A version of ROCm or of its driver: 7.2 is 7.2.0."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def series(self) -> str:
        """7.2 of 7.2.4: what the packages of the current stream have in their names."""
        return f"{self.major}.{self.minor}"

    @property
    def directory(self) -> str:
        """The version as AMD's directories spell it: a last .0 is dropped."""
        return str(self) if self.patch else self.series

    @property
    def token(self) -> str:
        """The version as it is part of a package's: 70204 of ROCm, 30300400 of a driver."""
        token = f"{self.major}{self.minor:02}{self.patch:02}"
        # Since the driver has versions of its own, which begin at 30, it has two digits more.
        return token + "00" if self.major >= 30 else token


def parse(text: str) -> Version | None:
    """Return the version, or None for what is none."""
    found = _FORM.fullmatch(text.strip())
    return Version(*(int(part or 0) for part in found.groups())) if found else None


def is_current_stream(version: Version) -> bool:
    """Say whether ROCm of this version is of the stream that 7.9 began ("TheRock")."""
    return version >= Version(7, 9, 0)


def matches(version: str, pattern: str | None) -> bool:
    """Say whether an installed version is one of those that will do; an epoch need not be told."""
    return pattern is None or any(
        fnmatchcase(form, pattern) for form in (version, version.partition(":")[2])
    )


def module_of(package: str) -> tuple[str, str] | None:
    """Return the driver's version and release, of its package's version.

    ``1:6.16.13.30300400-2341068.24.04`` is 6.16.13, 2341068.24.04, as DKMS names it, too:
    amdgpu/6.16.13-2341068.24.04.
    """
    found = re.fullmatch(r"(?:\d+:)?(\d+(?:\.\d+)+?)\.\d{5,8}-(.+)", package)
    return (found[1], found[2]) if found else None


def kernel_order(release: str) -> tuple[int, ...]:
    """Return what orders kernel releases by age."""
    return tuple(int(number) for number in re.findall(r"\d+", release))
