# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel driver on a host, and what has to hold with the right driver and userland."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..types import Check
from .host import HostState, boot_minimum
from .packages import is_right, modules_of, other_stream
from .target import Target, is_legacy, streams
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


ACCESS = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"
DKMS_SOURCE = "https://github.com/ROCm/legacy-rocm-build/issues/3701"
# What only a reboot, or the unit that loads a blacklisted driver, brings in order.
AFTER_REBOOT = ("ROCM-DRIVER-LOADED", "ROCM-DEVICES")
GROUPS = ("render", "video")


def present(
    target: Target, state: HostState, driver: Driver, packages: tuple[Package, ...]
) -> Iterator[Check]:
    """Yield what has to hold of packages and, where a driver is wanted, of it."""
    yield from _packages(packages, state)
    yield from _streams(target, state)
    if target.driver:
        yield from _kernels(driver)
        yield from _modules(target, state)
        yield from _loaded(target, driver, state)
        yield from _devices(state)
        yield from secure_boot(state)
        if state.boot_mib is not None:
            yield Check.of(
                "ROCM-BOOT-SPACE",
                "/boot",
                state.boot_mib >= boot_minimum(),
                f"{state.boot_mib} MiB free",
                f"{boot_minimum()} MiB or more",
                minor=True,
            )
        for kernel in driver.stale_ramdisks:
            yield Check.of(
                "ROCM-INITRAMFS",
                kernel,
                False,
                "an initial ramdisk older than the driver",
                "one written after it",
            )


def _packages(packages: tuple[Package, ...], state: HostState) -> Iterator[Check]:
    """Yield what no difference tells: packages of the distribution's, and unfinished ones."""
    for package in packages:
        version = state.version(package.name)
        if version is None or package.name in state.broken or is_right(package, state):
            continue
        if not (package.name.startswith(("amdgpu", "amdrocm")) or is_legacy(package.name, version)):
            expected = package.version or "any version"
            yield Check.of("ROCM-SHADOWED", package.name, False, version, expected)
    if state.broken:
        yield Check.of(
            "ROCM-HALF-CONFIGURED", ", ".join(state.broken), False, "not configured", "installed"
        )


def _streams(target: Target, state: HostState) -> Iterator[Check]:
    other = other_stream(target, state)
    if other:
        yield Check.of(
            "ROCM-STREAM",
            target.stream,
            False,
            f"{len(other)} packages of the other stream, {other[0]} among them",
            "none",
            minor=True,
        )


def _kernels(driver: Driver) -> Iterator[Check]:
    newest = driver.kernels[0].release if driver.kernels else ""
    for kernel in driver.kernels:
        # An older kernel is booted by hand only.
        minor = not (kernel.running or kernel.release == newest)
        words = f"kernel {kernel.release}" + (" (running)" if kernel.running else "")
        if not kernel.dkms:
            yield Check.of(
                "ROCM-HEADERS",
                words,
                kernel.headers,
                "headers" if kernel.headers else "no /lib/modules/*/build",
                "the kernel's headers",
                minor=minor,
            )
        yield Check.of(
            "ROCM-DKMS",
            words,
            kernel.dkms,
            "installed" if kernel.dkms else f"no installed driver {driver.module or ''}".strip(),
            f"`dkms status` says installed for driver {driver.module or ''}".strip(),
            source=DKMS_SOURCE,
            minor=minor,
        )


def _modules(target: Target, state: HostState) -> Iterator[Check]:
    """Yield whether kernels of the distribution have their other modules, which amdgpu loads."""
    for kernel in state.kernels:
        for name in modules_of(target, kernel, state):
            there = name in state.packages and name not in state.broken
            yield Check.of(
                "ROCM-KERNEL-MODULES",
                f"kernel {kernel}",
                there,
                name if there else f"no {name}",
                name,
            )


def _loaded(target: Target, driver: Driver, state: HostState) -> Iterator[Check]:
    problem = loaded_problem(driver, state)
    blacklisted = kept_away(state)
    if blacklisted:
        yield Check.of(
            "ROCM-BLACKLISTED",
            "amdgpu",
            False,
            f"{state.blacklisted}, and no amdgpu loaded",
            "a driver that is loaded after boot",
        )
    yield Check.of(
        "ROCM-DRIVER-LOADED",
        "amdgpu",
        problem is None,
        problem or f"driver {state.loaded.version if state.loaded else ''} loaded",
        f"driver {driver.module or target.driver}, built by DKMS",
    )
    path = state.module.get("file", "")
    if path:
        built = "/kernel/drivers/" not in path
        yield Check.of("ROCM-DKMS", "modprobe", built, path, "a driver below updates/ or extra/")


def _devices(state: HostState) -> Iterator[Check]:
    render = [node for node in state.nodes if node.path.startswith("/dev/dri/renderD")]
    kfd = [node for node in state.nodes if node.path == "/dev/kfd"]
    count = len([gpu for gpu in state.gpus if gpu.model])
    yield Check.of(
        "ROCM-DEVICES",
        "/dev",
        bool(kfd) and len(render) >= count,
        f"{'' if kfd else 'no '}/dev/kfd, {len(render)} render nodes",
        f"/dev/kfd, {count} render nodes or more",
    )
    for node in (*kfd, *render):
        opened = node.mode[-1:] in ("6", "7")
        shut = node.group not in GROUPS or node.mode[-2:-1] not in ("6", "7")
        if shut and not opened:
            yield Check.of(
                "ROCM-DEVICES",
                node.path,
                False,
                f"group {node.group}, mode {node.mode}",
                "group render, mode 660",
                source=ACCESS,
            )


def secure_boot(state: HostState) -> Iterator[Check]:
    if state.secure_boot:
        yield Check.of(
            "ROCM-SECURE-BOOT",
            "Secure Boot",
            bool(state.enrolled),
            "on, DKMS's key " + ("enrolled" if state.enrolled else "not enrolled"),
            "the key that DKMS signs with enrolled",
        )
