# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel driver: built for which kernels, loaded or not, and what needs a reboot."""

from __future__ import annotations

from dataclasses import dataclass

from .host import HostState
from .packages import is_right
from .target import Target, streams
from .types import Argv, Kernel, Package, module_of


@dataclass(frozen=True)
class Driver:
    """Where the driver stands; ``module`` is the version it reports, None where unknown.

    ``settled``: the packages are there as wanted, so what is left to do is kernels and reboot.
    """

    settled: bool
    module: str | None
    dkms: str | None
    kernels: tuple[Kernel, ...]
    stale_ramdisks: tuple[str, ...]


def driver_of(target: Target, packages: tuple[Package, ...], state: HostState) -> Driver:
    """Return where the driver of this target stands on this host."""
    wanted = streams()["driver"]["packages"]
    settled = all(is_right(one, state) for one in packages if one.name in wanted)
    installed = state.version("amdgpu-dkms") if settled else None
    parts = module_of(installed) if installed else None
    module = parts[0] if parts else target.module
    named = [
        build
        for build in state.builds
        if parts is not None
        and build.version.startswith(parts[0])
        and build.version.endswith(f"-{parts[1]}")
    ]
    done = {build.kernel for build in named if build.state == "installed"}
    kernels = tuple(
        Kernel(release, release == state.running, release in state.with_headers, release in done)
        for release in state.kernels
    )
    return Driver(
        settled=settled,
        module=module,
        # Its source may be there without DKMS knowing: it then finds it by this name.
        dkms=named[0].version if named else "-".join(parts) if parts else None,
        kernels=kernels,
        stale_ramdisks=_stale_ramdisks(target, state),
    )


def _stale_ramdisks(target: Target, state: HostState) -> tuple[str, ...]:
    """Return kernels whose initial ramdisk was written before the driver built for them."""
    form = target.system.family_facts["ramdisk"]
    stale = []
    for kernel in state.kernels:
        written = state.ramdisks.get(form.format(kernel=kernel))
        built = [
            time for path, time in state.built.items() if path.startswith(f"/lib/modules/{kernel}/")
        ]
        if written is not None and built and written < max(built):
            stale.append(kernel)
    return tuple(stale)


def builds(driver: Driver, coming: frozenset[str]) -> tuple[Argv, ...]:
    """Return the commands that build the driver where it is not, once its source is there.

    ``coming`` are the kernels whose headers are installed before; without any there is no build.
    """
    if not driver.settled or driver.dkms is None:
        return ()
    return tuple(
        ("dkms", "install", f"amdgpu/{driver.dkms}", "-k", kernel.release)
        for kernel in driver.kernels
        if not kernel.dkms and (kernel.headers or kernel.release in coming)
    )


def loaded_problem(driver: Driver, state: HostState) -> str | None:
    """Say what is wrong with the driver in the running kernel, or None."""
    loaded = state.loaded
    if loaded is None:
        return "no amdgpu loaded"
    if loaded.version is None:
        return "the kernel's own (in-box) driver loaded"
    if driver.module and not f"{loaded.version}.".startswith(f"{driver.module}."):
        return f"driver {loaded.version} loaded"
    source = state.module.get("source")
    if loaded.source and source and loaded.source != source:
        return f"another build of driver {loaded.version} loaded (srcversion {loaded.source})"
    return None


def kept_away(state: HostState) -> bool:
    """Say whether a blacklist keeps the driver out until some unit loads it after boot."""
    return state.loaded is None and state.blacklisted is not None


def reboot_reasons(
    target: Target, driver: Driver, state: HostState, changes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return why the host has to be rebooted, once ``changes`` (of the driver) are made.

    AMD asks for a reboot after each: firmware of the GPUs may come with the driver, too.
    """
    if target.settings.state == "absent":
        loaded = state.loaded is not None and state.loaded.version is not None
        return ("the driver is removed while it is loaded",) if changes and loaded else ()
    if not target.driver:
        return ()
    if changes:
        return (f"the driver becomes {target.driver}",)
    running = [kernel for kernel in driver.kernels if kernel.running]
    problem = loaded_problem(driver, state)
    if problem is None or not any(kernel.dkms for kernel in running):
        return ()
    if kept_away(state):
        # Whatever loads it after boot has not yet; a reboot would change nothing.
        return ()
    return (f"{problem}, {driver.module} is installed",)
