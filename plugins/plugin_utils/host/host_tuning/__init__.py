# SPDX-License-Identifier: GPL-3.0-or-later

"""Tune a host for inference: kernel command line, sysctl, CPUs, limits; look at the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...evidence.types import Evidence
from ...findings import Finding
from .. import resources
from ..types import Check, Skipped
from . import boot, catalogue, cmdline, limits, live, observed, sysctl
from .machine import Machine, Platform, machine

_NUMBERED = re.compile(r"/sys/class/net/(eth\d+)$")


@dataclass(frozen=True)
class Settings:
    """The inputs of the role host_tuning, without its prefix."""

    state: Literal["present", "absent"] = "present"
    profile: Literal["required", "serving", "full"] = "serving"
    platform: Platform = "auto"
    boot_loader: Literal["auto", "none"] = "auto"
    settings: dict[str, Any] = field(default_factory=dict)
    insecure: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostTuningPlan(catalogue.Part):
    """What the role applies: live values, units of a boot, and the boot loader's commands.

    ``boot_commands`` run once the files are written; ``gone_units`` are disabled before theirs are
    removed. ``arguments`` are our words of the kernel command line.
    """

    gone_units: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    boot_commands: tuple[tuple[str, ...], ...] = ()


def decide(settings: Settings, evidence: Evidence) -> HostTuningPlan:
    """Return how a host is tuned; with state absent, how it loses all that it got from here."""
    host = machine(evidence, settings.platform)
    undone = settings.state == "absent"
    plan = _undo(settings, evidence, host) if undone else _tune(settings, evidence, host)
    return replace(plan, resources=_resources(plan, settings.state))


def _resources(plan: HostTuningPlan, state: str) -> tuple[resources.Resource, ...]:
    return (
        resources.live("host_tuning", plan.live, state),
        *resources.services(plan.gone_units, enabled=False),
        *resources.files(plan.files),
        *resources.services(plan.units, enabled=True),
        # The boot loader's own tools, listed only where something differs.
        *({"kind": "command", "argv": list(argv)} for argv in plan.boot_commands),
    )


def _tune(settings: Settings, evidence: Evidence, host: Machine) -> HostTuningPlan:
    selection = catalogue.select(settings.profile, settings.settings, settings.insecure, host)
    chosen = selection.chosen
    ours = tuple(dict.fromkeys(word for one in chosen for word in one.arguments))
    against = {
        word: one.arguments[0]
        for one in reversed(chosen)
        for word in one.setting.facts.get("excludes", ())
        if word not in ours
    }
    wanted = boot.Wanted(ours, against)
    booted = boot.plan(evidence, wanted, host.container, settings.boot_loader == "auto")
    kernel = sysctl.plan(evidence, tuple(one for one in chosen if "sysctl" in one.setting.facts))
    values = live.plan(evidence, chosen, host.container)
    parts = (kernel, values, limits.plan(evidence, tuple(selection.of("limits"))))
    looked = [
        observed.check(evidence, host, one.setting)
        for one in selection.of("acs", "bios_observable", "memory")
    ]
    return HostTuningPlan(
        files=(*_all("files", parts), *booted.files),
        checks=(
            *_argument_checks(host, selection, booted, wanted),
            *_all("checks", parts),
            *looked,
        ),
        findings=(*selection.findings, *booted.findings, *_told(evidence, host, selection)),
        skipped=(*selection.skipped, *_all("skipped", parts), *_unmanaged(booted, wanted)),
        reboot=tuple(_reboot(host, selection, booted)),
        live=_all("live", parts),
        units=values.units,
        gone_units=tuple(name for name in live.names(evidence) if name not in values.units),
        arguments=wanted.ours,
        boot_commands=booted.commands,
    )


def _all(field: str, parts: tuple[catalogue.Part, ...]) -> tuple[Any, ...]:
    """Return what the parts have of a field, in their order."""
    return tuple(item for part in parts for item in getattr(part, field))


def _undo(settings: Settings, evidence: Evidence, host: Machine) -> HostTuningPlan:
    """Return the plan that takes away what earlier runs left; it needs no reboot to be applied."""
    booted = boot.plan(evidence, boot.Wanted(), host.container, settings.boot_loader == "auto")
    files = (
        *sysctl.plan(evidence, ()).files,
        *live.plan(evidence, ()).files,
        *limits.plan(evidence, ()).files,
        *booted.files,
    )
    return HostTuningPlan(
        files=files,
        findings=booted.findings,
        gone_units=tuple(live.names(evidence)),
        boot_commands=booted.commands,
    )


def _argument_checks(
    host: Machine, selection: catalogue.Selection, booted: boot.BootPlan, wanted: boot.Wanted
) -> Iterator[Check]:
    """Check what the running kernel was told, and what the next one will be."""
    for one in selection.chosen:
        for word in one.arguments:
            # What has a live value is right without it.
            only_here = one.setting.kind in ("kernel_argument", "modprobe")
            against = cmdline.contradictions(
                host.running, (word,), one.setting.facts.get("excludes", ())
            )
            right = cmdline.has(host.running, word) and not against
            found = " ".join(against) or ("it" if right else "nothing of it")
            state: Literal["pass", "fail", "skip", "unknown"] = "pass" if right else "fail"
            if not host.running:
                state, found = "unknown", "/proc/cmdline could not be read"
            elif booted.loader is None and host.container and not right:
                state, found = "skip", "a container is booted by its machine's kernel"
            yield Check(
                "TUNE-ARGUMENT",
                f"{host.name}: {word}",
                state,
                found,
                f"{word} in /proc/cmdline",
                source=one.setting.source,
                minor=not (one.setting.grade == "required" and only_here),
                word=word,
            )
    if booted.loader is None or not wanted.ours:
        return
    if booted.next_boot is None:
        yield _next_boot(host, "unknown", "grub.cfg could not be read", wanted)
        return
    wrong = [line for line in booted.next_boot if boot.lacking(line, wanted)]
    some = next(iter(wrong), ())
    lacks = [word for word in wanted.ours if not cmdline.has(some, word)]
    lacks += cmdline.contradictions(some, (), wanted.excludes)
    found = f"{len(wrong)} of {len(booted.next_boot)} boot entries differ: {' '.join(lacks)}"
    if not booted.next_boot:
        yield _next_boot(host, "unknown", "the boot loader shows no entry", wanted)
    elif wrong:
        yield _next_boot(host, "fail", found, wanted)
    else:
        yield _next_boot(host, "pass", f"{len(booted.next_boot)} boot entries with them", wanted)


def _next_boot(
    host: Machine, state: Literal["pass", "fail", "unknown"], found: str, wanted: boot.Wanted
) -> Check:
    expected = " ".join(wanted.ours)
    return Check("TUNE-NEXT-BOOT", f"{host.name}: boot loader", state, found, expected)


def _unmanaged(booted: boot.BootPlan, wanted: boot.Wanted) -> Iterator[Skipped]:
    if booted.loader is None and wanted.ours:
        yield Skipped(f"kernel command line ({' '.join(wanted.ours)})", booted.reason)


def _reboot(host: Machine, selection: catalogue.Selection, booted: boot.BootPlan) -> Iterator[str]:
    """Yield why the host has to be rebooted: a required word that only a boot brings."""
    if booted.loader is None or not host.running:
        return
    for one in selection.of("kernel_argument"):
        if one.setting.grade != "required":
            continue
        for word in one.arguments:
            excludes = one.setting.facts.get("excludes", ())
            against = cmdline.contradictions(host.running, (word,), excludes)
            if not booted.brings(word):
                continue
            if against:
                yield f"the running kernel was told {' '.join(against)} instead of {word}"
            elif not cmdline.has(host.running, word):
                yield f"the running kernel was not told {word}"


def _told(evidence: Evidence, host: Machine, selection: catalogue.Selection) -> Iterator[Finding]:
    """Yield what the operator should know before it happens."""
    numbered = sorted(found.group(1) for path in evidence.links if (found := _NUMBERED.match(path)))
    new = [
        one
        for one in selection.chosen
        if one.setting.facts.get("provisioning") and not cmdline.has(host.running, one.arguments[0])
    ]
    if new and len(numbered) > 1:
        yield Finding(
            "TUNE-NIC-NAMES",
            f"{host.name}: {' '.join(one.arguments[0] for one in new)}",
            f"found NICs with the kernel's own names ({', '.join(numbered)}), expected predictable "
            "ones: they may change at next boot",
            source=new[0].setting.source,
        )
    profile = evidence.files.get("/etc/tuned/active_profile", "").strip()
    if profile and "/run/tuned/tuned.pid" in evidence.files:
        message = f"found TuneD with the profile {profile}, expected nothing else that sets values"
        yield Finding("TUNE-TUNED", host.name, message)
    if host.kubernetes and any(one.setting.id == "amdgpu_later" for one in selection.chosen):
        yield Finding(
            "TUNE-BLACKLIST",
            f"{host.name}: amdgpu_later",
            "found a Kubernetes node, expected a host whose driver nobody else loads",
        )
