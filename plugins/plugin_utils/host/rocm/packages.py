# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages a host is to have, which it lacks, and which have to go first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from ...findings import Finding
from .host import HostState
from .target import Facts, Target, driver_names, is_legacy, streams
from .types import Argv, Offer, Package, PackageManager, matches


def wanted_packages(target: Target, state: HostState) -> tuple[Package, ...]:
    """Return driver and userland; with what else of this stream is installed, in the same version.

    Half of a release beside half of another is what no one has tested.
    """
    manager = target.system.package_manager
    names: dict[str, str | None] = {}
    if target.driver:
        token = target.driver.token
        for name in streams()["driver"]["packages"]:
            # The firmware's version begins with the driver's, the module's with the kernel's.
            exact = name == "amdgpu-dkms" and target.module
            epoch = "1:" if manager == "apt" else ""
            names[name] = f"{epoch}{target.module}.{token}-*" if exact else f"*.{token}-*"
    glob = target.userland_glob()
    names |= dict.fromkeys(target.packages(), glob)
    names |= dict.fromkeys(target.extras())
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


def spec(manager: PackageManager, name: str, version: str | None) -> str:
    """Return a package with its version as the package manager is asked for it."""
    if version is None:
        return name
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
        given_up = headers_gone(target, state)
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
    current, legacy = _of_streams(target, state)
    return current if target.stream == "legacy" else legacy


def _of_streams(target: Target, state: HostState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the installed packages of the current stream and of the legacy one."""
    names = sorted(name for name in state.packages if not left_alone(target, name))
    legacy = (name for name in names if any(is_legacy(name, one) for one in state.packages[name]))
    return tuple(name for name in names if name.startswith("amdrocm")), tuple(legacy)


def removed(target: Target, state: HostState) -> tuple[str, ...]:
    """Return what has to go before the rest is installed.

    AMD's installer goes: it owns repository files and a key of the same purpose, and takes them
    along whenever it goes.
    """
    if target.settings.state == "absent":
        ours = (name for name in driver_names() if name in state.packages)
        left = (name for name in ours if not left_alone(target, name))
        return tuple(sorted({*left, *itertools.chain(*_of_streams(target, state))}))
    helpers = tuple(name for name in ("amdgpu-install", "amdrocm-repo") if name in state.packages)
    other = other_stream(target, state) if target.settings.remove_legacy else ()
    return (*helpers, *(name for name in other if name not in helpers))


def meta_packages(target: Target, state: HostState) -> tuple[str, ...]:
    """Return the installed packages that bring the next kernel, or its headers."""
    facts = target.system.facts
    if "meta" in facts:
        flavours = "|".join(facts["flavours"])
        pattern = re.compile(facts["meta"].format(flavour=f"(?:{flavours})"))
    else:
        pattern = re.compile(facts["kernel_packages"])
    return tuple(sorted(name for name in state.packages if pattern.fullmatch(name)))


def held_packages(target: Target, state: HostState) -> tuple[str, ...]:
    """Return what must not be upgraded by the way: the driver, and kernels where requested."""
    names = list(streams()["driver"]["packages"]) if target.driver else []
    if target.settings.hold_kernel:
        names += meta_packages(target, state)
        if target.driver:
            names += (name for offer in without_headers(target, state) for name in offer.packages)
    return tuple(names)


def kernel_findings(target: Target, state: HostState, host: str) -> Iterator[Finding]:
    """Report that there is nothing to hold, and headers that no repository has any more."""
    if target.settings.hold_kernel and not meta_packages(target, state):
        yield Finding(
            "ROCM-KERNEL-HOLD",
            host,
            "found no installed package that brings the next kernel, expected one to hold",
        )
    if target.driver and headers_gone(target, state) and not target.settings.update_kernel:
        yield Finding(
            "ROCM-HEADERS-GONE",
            host,
            f"no repository has linux-headers-{state.running} any more, which the driver is built"
            f" with; {', '.join(_next(target, state))} can be had",
        )


def without_headers(target: Target, state: HostState) -> Iterator[Offer]:
    """Yield the headers of kernels that come by an upgrade: without them the driver is lost."""
    facts = target.system.facts
    if "meta_image" not in facts or state.running is None:
        return
    installed = meta_packages(target, state)
    for name in installed:
        suffix = name.removeprefix(facts["meta_image"])
        whole = facts.get("meta_whole", facts["meta_headers"]) + suffix
        headers = facts["meta_headers"] + suffix
        # linux-generic depends on both.
        if name != suffix and not {whole, headers} & set(installed):
            yield Offer(state.running, (headers,))


def headers_gone(target: Target, state: HostState) -> bool:
    """Return whether repositories have a later kernel of this flavour, and not this one's headers.

    Package lists that have neither tell nothing: they are not fetched yet.
    """
    running = state.running
    missing = running is not None and running not in state.with_headers
    facts = target.system.facts
    if not missing or "meta_headers" not in facts or f"linux-headers-{running}" in state.packages:
        return False
    offered = set(state.offered_headers)
    return f"linux-headers-{running}" not in offered and bool(_next(target, state))


def kernel_update(target: Target, state: HostState) -> tuple[str, ...]:
    """Return the packages of the newest kernel of this flavour, where the running one is given up.

    None where it is installed already, and boots next.
    """
    if not (target.settings.update_kernel and headers_gone(target, state)):
        return ()
    return () if state.kernels[0] != state.running else _next(target, state)


def _next(target: Target, state: HostState) -> tuple[str, ...]:
    """Return image and headers of the flavour, as repositories have them."""
    facts = target.system.facts
    headers, image = facts["meta_headers"], facts["meta_image"]
    whole = facts.get("meta_whole", image)
    names = meta_packages(target, state)
    installed = [name.removeprefix(image).removeprefix(whole) for name in names]
    flavours = [name for name in facts["flavours"] if (state.running or "").endswith(f"-{name}")]
    # cloud-amd64 ends with amd64, too; generic-hwe-24.04 is installed rather than generic.
    named = sorted(flavours, key=len)[-1:]
    suffixes = [name for name in installed if named and name.startswith(named[0])] + named
    for suffix in suffixes:
        if headers + suffix in state.offered_headers:
            return (image + suffix, headers + suffix)
    return ()
