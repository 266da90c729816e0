# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages a host is to have, which it lacks, and which have to go first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from . import kernels
from .host import HostState
from .target import Facts, Target, driver_names, is_legacy, streams
from .types import Argv, Package, PackageManager, matches


def wanted_packages(target: Target, state: HostState) -> tuple[Package, ...]:
    """Return driver and userland; with what else of this stream is installed, in the same version.

    Half of a release beside half of another is what no one has tested.
    """
    manager = target.system.package_manager
    names: dict[str, str] = {}
    if target.driver:
        token = target.driver.token
        for name in streams()["driver"]["packages"]:
            # The firmware's version begins with the driver's, the module's with the kernel's.
            exact = name == "amdgpu-dkms" and target.module
            epoch = "1:" if manager == "apt" else ""
            names[name] = f"{epoch}{target.module}.{token}-*" if exact else f"*.{token}-*"
    glob = target.userland_glob()
    names |= dict.fromkeys(target.packages(), glob)
    for name, versions in sorted(state.packages.items()):
        if left_alone(target, name):
            continue
        if any(target.is_userland(name, one) and not matches(one, glob) for one in versions):
            names.setdefault(name, glob)
    return tuple(
        Package(name, version, spec(manager, name, version)) for name, version in names.items()
    )


def left_alone(target: Target, name: str) -> bool:
    """Return whether an installed package stays as it is.

    Of a release beside this one, of none any more, or by the operator's word.
    """
    legacy = streams()["legacy"]
    beside = not name.startswith("amd") and re.search(legacy["side_by_side"], name)
    named = any(fnmatchcase(name, glob) for glob in target.settings.leave_packages)
    return bool(beside) or name in legacy["dropped"] or named


def spec(manager: PackageManager, name: str, version: str) -> str:
    """Return a package with its version as the package manager is asked for it."""
    if manager == "apt":
        return f"{name}={version}"
    # A version begins with a digit; unsaid, dnf may take a star for a part of the name.
    return f"{name}-{'[0-9]' if version.startswith('*') else ''}{version}"


def prerequisites(target: Target, state: HostState) -> tuple[str, ...]:
    """Return what driver and userland need of the distribution, kernel headers first.

    Of kernels that neither run nor boot next, repositories need not have them any more.
    """
    names: list[str] = []
    facts = target.system.facts
    if target.driver:
        given_up = kernels.headers_gone(target, state)
        for kernel in decisive(state):
            if not (given_up and kernel == state.running):
                names += headers_of(target, kernel, state)
        if state.running:
            names += [
                name.format(kernel=state.running)
                for name in facts.get("running", ())
                if _needs(name.format(kernel=state.running), state.running, state)
            ]
        names += facts.get("packages", ())
    names += target.stream_facts["prerequisites"][target.system.family]
    if target.driver and target.system.package_manager == "dnf":
        names.append("python3-dnf-plugin-versionlock")
    return tuple(dict.fromkeys(names))


def decisive(state: HostState) -> tuple[str, ...]:
    """Return the kernels that must have the driver: the newest, which boots next, and this one."""
    return tuple(one for one in state.kernels if one in (state.kernels[0], state.running))


def headers_of(target: Target, kernel: str, state: HostState) -> list[str]:
    """Return the packages that a kernel's build directory comes from."""
    facts = target.system.facts
    forms = facts["headers"]
    if "headers_pattern" in facts and facts["headers_pattern"] not in kernel:
        forms = facts["headers_other"]
    return [name for form in forms if _needs(name := form.format(kernel=kernel), kernel, state)]


def modules_of(target: Target, kernel: str, state: HostState) -> list[str]:
    """Return the packages of a kernel's other modules: the distribution's own kernels have them."""
    images = (f"linux-image-{kernel}", f"linux-image-unsigned-{kernel}")
    if not any(name in state.packages for name in images):
        return []
    return [form.format(kernel=kernel) for form in target.system.facts.get("modules", ())]


def _needs(name: str, kernel: str, state: HostState) -> bool:
    """Say whether a package is to be asked for: a kernel built by hand brings its headers along."""
    return kernel not in state.with_headers or name in state.packages


def enabling(target: Target, state: HostState) -> tuple[Argv, ...]:
    """Return the commands that enable repositories beside AMD's, of those that are not yet."""
    words = {"major": target.system.major, "version": target.system.version}
    return tuple(
        tuple(word.format(**words) for word in one["command"])
        for one in _extra_repositories(target, state)
        if "command" in one
    )


def unreachable(target: Target, state: HostState) -> tuple[str, ...]:
    """Return repositories that no package of the distribution brings: who wants them vouches."""
    return tuple(one["name"] for one in _extra_repositories(target, state) if "name" in one)


def _extra_repositories(target: Target, state: HostState) -> Iterator[Facts]:
    """Yield the entries of repositories that are wanted and not enabled."""
    if not (target.driver and target.settings.extra_repositories):
        return
    for one in target.system.facts["enable"]:
        listed = one["listed"].replace("{major}", target.system.major)
        there = one.get("until") in state.packages
        if not there and not re.search(listed, state.repositories):
            yield one


def missing(
    packages: tuple[Package, ...], needed: tuple[str, ...], state: HostState
) -> tuple[str, ...]:
    """Return the specs of what is not there, or in another version; prerequisites first."""
    return (
        *(name for name in needed if not _is_installed(name, state)),
        *(one.spec for one in packages if not is_right(one, state)),
    )


def _is_installed(name: str, state: HostState) -> bool:
    if name in state.packages:
        return name not in state.broken
    # An rpm's name may be asked for with its version: kernel-devel-5.14.0-570.el9.x86_64.
    return any(
        name in (f"{known}-{version}", f"{known}-{version}.x86_64")
        for known, versions in state.packages.items()
        if name.startswith(known + "-")
        for version in versions
    )


def is_right(package: Package, state: HostState) -> bool:
    """Say whether a package is installed in a version that will do, and none that won't."""
    versions = state.packages.get(package.name, ())
    right = bool(versions) and all(matches(one, package.version) for one in versions)
    return right and package.name not in state.broken


def other_stream(target: Target, state: HostState) -> tuple[str, ...]:
    """Return installed packages of the stream that is not wanted."""
    return tuple(
        sorted(
            name
            for name, versions in state.packages.items()
            if not left_alone(target, name)
            and (
                name.startswith("amdrocm")
                if target.stream == "legacy"
                else any(is_legacy(name, one) for one in versions)
            )
        )
    )


def all_packages(target: Target, state: HostState) -> tuple[str, ...]:
    """Return every installed package of AMD's that the role may remove."""
    return tuple(
        sorted(
            name
            for name, versions in state.packages.items()
            if not left_alone(target, name)
            and (
                name in driver_names()
                or name.startswith("amdrocm")
                or any(is_legacy(name, one) for one in versions)
            )
        )
    )


def removed(target: Target, state: HostState) -> tuple[str, ...]:
    """Return what has to go before the rest is installed.

    AMD's installer goes: it owns repository files and a key of the same purpose, and takes them
    along whenever it goes.
    """
    if target.settings.state == "absent":
        return all_packages(target, state)
    helpers = tuple(name for name in ("amdgpu-install", "amdrocm-repo") if name in state.packages)
    other = other_stream(target, state) if target.settings.remove_legacy else ()
    return (*helpers, *(name for name in other if name not in helpers))
