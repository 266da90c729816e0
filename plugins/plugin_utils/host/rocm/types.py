# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `rocm` asks for, and what it is told to do."""

from __future__ import annotations

from dataclasses import dataclass
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
