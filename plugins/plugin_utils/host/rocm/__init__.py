# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's driver and ROCm on a host: from settings and evidence to the plan that the role applies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...documents import to_document
from ...evidence.types import Evidence
from ...findings import Finding
from .. import resources
from ..facts import is_guest, os_release, serving_replicas
from ..types import HostFile, Kept, Skipped
from . import checks, packages, repositories, support
from .checks import Driver, builds, driver_of, kept_away, reboot_reasons
from .host import HostState, boot_minimum, read
from .target import Target, complete, driver_names, streams, system_of
from .types import Argv, Key, Offer, Package, RocmPlan, Settings, parse

__all__ = ["Key", "Package", "RocmPlan", "Settings", "decide"]

_LINKER = "/etc/ld.so.conf.d/"
_WORK = ("packages", "repair", "enable", "unhold", "remove", "dkms", "hold", "optional")


def decide(settings: Settings, evidence: Evidence) -> RocmPlan:
    """Return what this host needs of AMD's driver and ROCm, and what holds of it now."""
    plan = _decided(settings, evidence)
    return replace(plan, resources=tuple(_resources(plan)))


def _resources(plan: RocmPlan) -> list[resources.Resource]:
    manager = plan.package_manager
    libraries = [item for item in plan.files if item.path.startswith(_LINKER)]
    repository = {
        "keys": to_document(plan.keys),
        "files": to_document([item for item in plan.files if item not in libraries]),
        "packages": to_document(plan.packages),
    }
    work = {name: to_document(getattr(plan, name)) for name in _WORK}
    # What the kernel module is built with must be there before the driver is.
    stages = [
        [name for name in plan.missing if (name in plan.prerequisites) is first]
        for first in (True, False)
    ]
    work |= {"install": stages, "initramfs": list(plan.initramfs or ())}
    return [
        {"kind": "repository", "name": "rocm", "manager": manager, **repository},
        {"kind": "transaction", "name": "rocm", "manager": manager, **work},
        *resources.files(libraries),
        *(
            {"kind": "command", "argv": ["ldconfig"], "after": [f"file {item.path}"]}
            for item in libraries
        ),
    ]


REPAIR: Argv = ("dpkg", "--configure", "-a")


def _decided(settings: Settings, evidence: Evidence) -> RocmPlan:
    """Return what this host needs; the plan has findings only where nothing can be planned.

    Raises ApiaryError with HOST-NO-RELEASE for evidence without an operating system.
    """
    release = os_release(evidence)
    system = system_of(release)
    refused = support.settings_findings(settings, evidence.host)
    rocm = parse(settings.rocm_version)
    if system is None:
        return RocmPlan(findings=(support.unknown_system(release, evidence.host), *refused))
    if rocm is None or refused:
        return RocmPlan(package_manager=system.package_manager, findings=refused)
    state = read(evidence)
    target = complete(settings, system, state, rocm)
    if settings.state == "absent":
        return _absent(target, state, evidence)
    return _present(target, state, evidence)


def _present(target: Target, state: HostState, evidence: Evidence) -> RocmPlan:
    settings = target.settings
    wanted = packages.wanted_packages(target, state)
    needed = packages.prerequisites(target, state)
    newer = packages.kernel_update(target, state)
    lacking = (*newer, *packages.missing(wanted, needed, state))
    needed = (*newer, *needed)
    driver = driver_of(target, wanted, state)
    remove = packages.removed(target, state)
    coming = frozenset(
        kernel
        for kernel in state.kernels
        if set(packages.headers_of(target, kernel, state)) & set(lacking)
    )
    rebuild = builds(driver, coming) if target.driver else ()
    drivers = streams()["driver"]["packages"]
    changes = tuple(one.spec for one in wanted if one.name in drivers and one.spec in lacking)
    files = (
        *repositories.wanted_files(target, wanted),
        *(HostFile(path, None) for path in repositories.stale_files(target, evidence)),
    )
    keys = tuple({one.key.path: one.key for one in repositories.repositories(target)}.values())
    held = packages.held_packages(target, state)
    moved = [*remove, *(one.name for one in wanted if one.spec in lacking)]
    unhold = tuple(name for name in state.held if name in moved or name in lacking)
    reboot = reboot_reasons(target, driver, state, changes)
    if target.driver and settings.update_kernel and packages.headers_gone(target, state):
        reboot = (*reboot, f"kernel {state.running} has no headers any more, the newest one boots")
    # What is built for a kernel is loaded at the next boot; AMD's helpers nothing runs on.
    disruptive = (
        *(f"{name} is removed" for name in remove if name != "amdgpu-install"),
        *(f"{spec} is installed" for spec in changes),
    )
    return RocmPlan(
        package_manager=target.system.package_manager,
        driver_version=str(target.driver) if target.driver else None,
        repair=(*_forgotten(target, state), *((REPAIR,) if state.broken else ())),
        remove=remove,
        unhold=unhold,
        keys=keys,
        enable=packages.enabling(target, state),
        prerequisites=needed,
        packages=wanted,
        missing=lacking,
        optional=tuple(_optional(target, driver, state, lacking, rebuild)) if target.driver else (),
        hold=tuple(name for name in held if name not in state.held or name in unhold),
        dkms=rebuild,
        initramfs=tuple(target.system.family_facts["initramfs"])
        if target.driver and (changes or coming or rebuild or driver.stale_ramdisks)
        else None,
        disruptive=disruptive,
        after_reboot=checks.AFTER_REBOOT if reboot or (target.driver and kept_away(state)) else (),
        files=files,
        reboot=reboot,
        skipped=tuple(_skipped(target, state)),
        checks=tuple(checks.present(target, state, driver, wanted)),
        findings=(
            *support.findings(target, state, is_guest(evidence), evidence.host),
            *packages.kernel_findings(target, state, evidence.host),
            *repositories.key_findings(target),
            *repositories.mirror_findings(settings, evidence.host),
            *_host_findings(target, state, evidence, bool(changes)),
            *_serving(evidence, disruptive),
        ),
    )


def _forgotten(target: Target, state: HostState) -> Iterator[Argv]:
    """Yield what removes directories of drivers that are gone, on which DKMS fails."""
    for path in state.forgotten if target.driver else ():
        yield ("rm", "--recursive", "--force", "--one-file-system", path)


def _optional(
    target: Target,
    driver: Driver,
    state: HostState,
    lacking: tuple[str, ...],
    rebuild: tuple[Argv, ...],
) -> Iterator[Offer]:
    """Yield what kernels have where repositories still have it: headers, and their other modules.

    ``lacking`` is installed and ``rebuild`` run anyway.
    """
    for kernel in state.kernels:
        if kernel not in packages.decisive(state):
            wanted = tuple(packages.headers_of(target, kernel, state))
            names = tuple(
                name for name in packages.missing((), wanted, state) if name not in lacking
            )
            if names:
                yield Offer(
                    kernel,
                    names,
                    tuple(
                        argv
                        for argv in builds(driver, frozenset((kernel,)))
                        if argv[-1] == kernel and argv not in rebuild
                    ),
                    tuple(target.system.family_facts["initramfs"]),
                )
        modules = tuple(packages.modules_of(target, kernel, state))
        if names := packages.missing((), modules, state):
            yield Offer(kernel, names)
    yield from packages.without_headers(target, state)


def _host_findings(
    target: Target, state: HostState, evidence: Evidence, changes: bool
) -> Iterator[Finding]:
    """Yield what stops the role on this host before it has changed anything."""
    settings, host = target.settings, evidence.host
    other = packages.other_stream(target, state)
    if other and not settings.remove_legacy:
        yield Finding(
            "ROCM-STREAM",
            host,
            f"found {len(other)} packages of AMD's other stream of ROCm ({other[0]}, …), expected "
            "none: there is no upgrade between the two",
            source="https://rocm.docs.amd.com/en/latest/about/transition-guide-TheRock.html",
        )
    if target.driver and state.secure_boot and not state.enrolled:
        for check in checks.secure_boot(state):
            yield Finding(
                check.code,
                host,
                f"found Secure Boot {check.found}, expected {check.expected}: the kernel would not "
                "load the driver",
            )
    if changes and state.boot_mib is not None and state.boot_mib < boot_minimum():
        yield Finding(
            "ROCM-BOOT-SPACE",
            host,
            f"found {state.boot_mib} MiB free on /boot, expected {boot_minimum()} or more: an "
            "initial ramdisk that is cut off does not boot",
        )
    for name in packages.unreachable(target, state):
        yield Finding(
            "ROCM-EXTRA-REPOSITORY",
            host,
            f"found no repository {name}, expected one: DKMS comes from it",
            name=name,
        )


def _serving(evidence: Evidence, disruptive: tuple[str, ...]) -> Iterator[Finding]:
    units = serving_replicas(evidence)
    if units and disruptive:
        yield Finding(
            "ROCM-SERVING",
            evidence.host,
            f"found {', '.join(units)} active, expected none while the driver changes "
            f"({disruptive[0]})",
        )


def _skipped(target: Target, state: HostState) -> Iterator[Skipped]:
    settings = target.settings
    if not settings.driver:
        yield Skipped("driver", "rocm_driver is false: only the userland is looked after")
    if target.series is None:
        yield Skipped("matrix", f"nothing is known of ROCm {target.rocm.series}")
    if settings.profile == "serving":
        yield Skipped("libraries", "profile serving: containers bring their own userland")
    if beside := [name for name in sorted(state.packages) if packages.left_alone(target, name)]:
        yield Kept(f"packages {' '.join(beside)}", "of other releases, or of rocm_leave_packages")
    if not state.secure_boot and settings.driver:
        yield Skipped("signing", "Secure Boot is off, or the host tells nothing of it")


def _absent(target: Target, state: HostState, evidence: Evidence) -> RocmPlan:
    """Return what takes everything away again; the kernels' headers stay."""
    remove = packages.removed(target, state)
    own = repositories.own_paths(target)
    drivers = tuple(name for name in remove if name in driver_names())
    ours = {*remove, *packages.held_packages(target, state)}
    held = tuple(name for name in state.held if name in ours)
    disruptive = tuple(f"{name} is removed" for name in drivers)
    reboot = reboot_reasons(target, driver_of(target, (), state), state, drivers)
    return RocmPlan(
        package_manager=target.system.package_manager,
        repair=(REPAIR,) if state.broken and remove else (),
        remove=remove,
        unhold=held,
        initramfs=tuple(target.system.family_facts["initramfs"]) if drivers else None,
        disruptive=disruptive,
        files=tuple(HostFile(path, None) for path in own),
        reboot=reboot,
        skipped=(
            Skipped(
                "prerequisites", "packages of the distribution stay, kernel headers among them"
            ),
        ),
        findings=tuple(_serving(evidence, disruptive)),
    )
