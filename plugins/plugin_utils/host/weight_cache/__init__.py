# SPDX-License-Identifier: GPL-3.0-or-later

"""Weights on a host: where they are mounted, how, and whether they are what was published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...documents import knowledge, to_document
from ...evidence.types import Evidence
from ...findings import Finding, has_errors
from .. import facts as host_facts
from .. import resources
from ..types import UNITS, HostFile, LiveSetting, Skipped
from . import checks, files, mounts, options
from .settings import LOCAL, Mount, MountStep, Settings, WeightCachePlan, problems

__all__ = ["Settings", "WeightCachePlan", "decide"]
_MANAGERS = {"debian": "apt", "redhat": "dnf"}


def decide(settings: Settings, evidence: Evidence) -> WeightCachePlan:
    """Return what a host's weights need; raise WEIGHTS-EVIDENCE where it can't be known."""
    plan = _decide(settings, evidence)
    return replace(plan, resources=_resources(plan, settings))


def _resources(plan: WeightCachePlan, settings: Settings) -> tuple[resources.Resource, ...]:
    here = settings.state == "present"
    packages = {"manager": _MANAGERS.get(plan.family), "names": list(plan.packages)}
    models = here and bool(settings.models or settings.staged)
    verify = {"kind": "verify", "manifest_required": settings.manifest_required}
    # Until a mount of an earlier run is gone, its record stays: a run that is killed goes on by it.
    retired = any(one.action == "unmount" for one in plan.mounts)
    last = [one for one in plan.files if retired and one.path == files.CONFIGURATION]
    return (
        *([{"kind": "packages", **packages}] if plan.packages else []),
        *resources.files(one for one in plan.files if one not in last),
        resources.live("weight_cache", plan.live, settings.state),
        *resources.services(plan.services, state="started", enabled=True),
        *(_mount(step, settings) for step in plan.mounts),
        *resources.files(last),
        # After what is staged on the host's own disk, which is an act and no resource.
        *([{**verify, "part": "models"}] if models else []),
    )


def _mount(step: MountStep, settings: Settings) -> resources.Resource:
    timeout = settings.mount_timeout_seconds
    return {"kind": "mount", **to_document(step), "timeout_seconds": timeout}


def _decide(settings: Settings, evidence: Evidence) -> WeightCachePlan:
    refused = problems(settings)
    if refused:
        return WeightCachePlan(findings=refused)
    kernel = host_facts.kernel_release(evidence)
    requested = [(mount, options.requested(mount, kernel)) for mount in settings.mounts]
    refused = tuple(finding for _mount, one in requested for finding in one.findings)
    if has_errors(refused):
        return WeightCachePlan(findings=refused)
    here = settings.state == "present"
    family = os_family(evidence)
    shown = mounts.read_mounts(evidence)
    gone = stale_mounts(settings, evidence)
    wanted = files.files(settings, family, requested)
    wanted += tuple(HostFile(f"{UNITS}/{mounts.unit_name(path)}", None) for path in gone)
    steps = tuple(step(mount, one, shown, here) for mount, one in requested) + tuple(
        MountStep(path, mounts.unit_name(path), "unmount") for path in gone
    )
    steps = tuple(one for one in steps if one.path in gone or not _is_local(settings, one.path))
    live = _live(settings, evidence) if here else ()
    return WeightCachePlan(
        files=wanted,
        checks=tuple(checks.checks(settings, requested, evidence, shown, steps)),
        findings=(
            *_family_findings(settings, evidence, family),
            *_step_findings(settings, evidence, shown, steps),
            *_nconnect_findings(requested),
        ),
        skipped=tuple(one for _mount, each in requested for one in each.skipped)
        + _skipped_slots(settings, live),
        family=family,
        packages=_packages(family, requested, evidence) if here else (),
        live=live,
        services=("cachefilesd.service",)
        if here and any("fsc" in one.options for _mount, one in requested)
        else (),
        mounts=steps,
    )


def _is_local(settings: Settings, path: str) -> bool:
    return any(one.path == path and one.type == LOCAL for one in settings.mounts)


def os_family(evidence: Evidence) -> str:
    """Return the family of the host's packages, or nothing for one that is not known."""
    release = host_facts.os_release(evidence)
    families = knowledge("host/weight_cache.yml")["families"]
    return next((name for name, one in families.items() if release.id in one["ids"]), "")


def stale_mounts(settings: Settings, evidence: Evidence) -> tuple[str, ...]:
    """Return the mount points of an earlier run that are not requested any more."""
    try:
        earlier = json.loads(evidence.files.get(files.CONFIGURATION, "{}")).get("mounts", [])
        paths = [one["path"] for one in earlier if one["type"] != LOCAL]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    now = {one.path for one in settings.mounts if one.type != LOCAL}
    return tuple(path for path in paths if path not in now)


def step(
    mount: Mount, requested: options.Requested, shown: mounts.HostMounts, here: bool
) -> MountStep:
    """Return what has to happen at one mount point."""
    unit = mounts.unit_name(mount.path)
    there = shown.at(mount.path)
    if not here:
        return MountStep(mount.path, unit, "unmount")
    automount = mounts.unit_name(mount.path, "automount")
    held = tuple(
        name
        for name in (automount,)
        if name in shown.unit_states
        or any(one.type == "autofs" and one.source == "systemd-1" for one in there)
    )
    reasons = wrong(mount, requested, shown)
    return MountStep(
        mount.path,
        unit,
        "mount" if not there else "remount" if reasons else "keep",
        reasons,
        mount.wanted_readahead,
        held,
        mount.path in shown.fstab,
    )


def wrong(mount: Mount, requested: options.Requested, shown: mounts.HostMounts) -> tuple[str, ...]:
    """Return why what is mounted can't stay; empty where it can, or where nothing is mounted."""
    there = shown.at(mount.path)
    if not there:
        return ()
    top = there[-1]
    reasons = []
    if len(there) > 1:
        kinds = ", ".join(one.type for one in there)
        reasons.append(f"{len(there)} mounts lie on each other there ({kinds})")
    if mount.type == "bind":
        text = files.mount_unit(mount, requested)
        found = shown.unit_hashes.get(mounts.unit_name(mount.path))
        # Where a bind mount comes from does not show; its unit says it.
        if found != hashlib.sha256(text.encode()).hexdigest():
            reasons.append("it was mounted by another unit")
    elif not _same_kind(mount, top.type):
        reasons.append(f"it is of type {top.type}, not {mount.type}")
    elif _source(top.source) != _source(mount.source):
        reasons.append(f"it comes from {top.source}, not {mount.source}")
    shared = _shares_transport(mount, shown)
    for one in options.differences(requested.options, top.options):
        # What the server grants, and what the first mount of a server decides, stays as it is.
        if not one.lowered and not (one.option == "nconnect" and shared):
            reasons.append(f"{one.option} is {one.found}, not {one.expected}")
    return tuple(reasons)


def _same_kind(mount: Mount, found: str) -> bool:
    return found in ("nfs", "nfs4") if mount.is_nfs else found == mount.type


def _source(text: str) -> str:
    return text.rstrip("/") if not text.endswith(":/") else text


def _shares_transport(mount: Mount, shown: mounts.HostMounts) -> bool:
    """Say whether another mount of the same server has fixed the number of connections."""
    return any(
        one.path != mount.path
        and one.type in ("nfs", "nfs4")
        and one.source.rsplit(":/", 1)[0] == mount.server
        for one in shown.mounts
    )


def _live(settings: Settings, evidence: Evidence) -> tuple[LiveSetting, ...]:
    path = knowledge("host/weight_cache.yml")["session_slots"]["path"]
    nfs = any(one.is_nfs for one in settings.mounts)
    if not nfs or not settings.session_slots or path not in evidence.files:
        return ()
    return (LiveSetting(path, str(settings.session_slots)),)


def _skipped_slots(settings: Settings, live: tuple[LiveSetting, ...]) -> tuple[Skipped, ...]:
    if not settings.session_slots or live or not any(one.is_nfs for one in settings.mounts):
        return ()
    return (Skipped("session_slots", "the module nfs is not loaded; it is told when it is"),)


def _packages(
    family: str, requested: Sequence[tuple[Mount, options.Requested]], evidence: Evidence
) -> tuple[str, ...]:
    """Return the packages that are missing, judged by the programs that they bring."""
    nfs = [one for mount, one in requested if mount.is_nfs]
    if not nfs or not family:
        return ()
    names = knowledge("host/weight_cache.yml")["families"][family]["packages"]
    helpers = host_facts.output(evidence, "nfs_helpers").split()
    wanted = []
    if host_facts.command(evidence, "mount_nfs") is None:
        wanted += names["nfs"]
        # The others have no program that the evidence asks for: they come with the client.
        if any(one.has_kerberos for one in nfs):
            wanted += names["kerberos"]
        if any(str(one.options.get("proto", "")).startswith("rdma") for one in nfs):
            wanted += names["rdma"]
    if any("fsc" in one.options for one in nfs) and "/sbin/cachefilesd" not in helpers:
        wanted += names["fsc"]
    return tuple(wanted)


def _family_findings(settings: Settings, evidence: Evidence, family: str) -> tuple[Finding, ...]:
    if family or not any(one.is_nfs for one in settings.mounts):
        return ()
    known = host_facts.command(evidence, "mount_nfs") is not None
    return (
        Finding(
            "WEIGHTS-FAMILY",
            evidence.host,
            f"found {host_facts.os_release(evidence).name}, whose NFS client's package is unknown",
            minor=known,
        ),
    )


def _step_findings(
    settings: Settings, evidence: Evidence, shown: mounts.HostMounts, steps: Sequence[MountStep]
) -> Iterator[Finding]:
    """Yield refusals to disturb replicas or what others mounted, and what will be replaced."""
    serving = host_facts.serving_replicas(evidence)
    for one in steps:
        there = shown.at(one.path)
        if any(each.type == "autofs" and each.source != "systemd-1" for each in there):
            yield Finding(
                "WEIGHTS-AUTOFS",
                one.path,
                "found a map of the autofs service there, expected no automount",
            )
        if one.fstab or one.automounts:
            held = [*(["/etc/fstab"] if one.fstab else []), *one.automounts]
            yield Finding(
                "WEIGHTS-STALE",
                one.path,
                f"found it in {' and '.join(held)}, expected it in {one.unit} alone",
                accepted=settings.replace_existing,
            )
        if (
            one.action in ("remount", "unmount")
            and there
            and serving
            and not settings.remount_while_serving
        ):
            why = "; ".join(one.reasons) or "it is not requested any more"
            yield Finding(
                "WEIGHTS-SERVING",
                one.path,
                f"must be {one.action}ed ({why}) while {', '.join(serving)} may read it",
            )


def _nconnect_findings(requested: Sequence[tuple[Mount, options.Requested]]) -> tuple[Finding, ...]:
    """Return a warning for mounts of one server that ask for different numbers of connections."""
    counts: dict[str, dict[str, list[str]]] = {}
    for mount, one in requested:
        if mount.is_nfs:
            number = str(one.options.get("nconnect", 1))
            counts.setdefault(mount.server, {}).setdefault(number, []).append(mount.path)
    return tuple(
        Finding(
            "WEIGHTS-NCONNECT",
            server,
            "found nconnect "
            + ", ".join(f"{number} for {' '.join(paths)}" for number, paths in by.items())
            + "; the first mount of a server decides for all",
        )
        for server, by in counts.items()
        if len(by) > 1
    )
