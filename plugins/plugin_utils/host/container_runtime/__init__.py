# SPDX-License-Identifier: GPL-3.0-or-later

"""The container engine of a host and its GPUs' names: engine, CDI, groups, SELinux."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding
from .. import resources
from ..types import Check, CheckState, HostFile, Skipped
from . import specification as names
from .engine import (
    DAEMON_JSON,
    FACTS,
    PROGRAM,
    SERVICE,
    SPECIFICATION,
    UNIT,
    ContainerRuntimePlan,
    Engine,
    Settings,
    System,
    config_files,
    config_findings,
    config_validate,
    daemon_differs,
    daemon_json,
    daemon_settings,
    engine_of,
    system,
)

__all__ = ["ContainerRuntimePlan", "Settings", "decide"]


def decide(settings: Settings, evidence: Evidence) -> ContainerRuntimePlan:
    """Return what makes this host's containers find their GPUs, and what holds of it now."""
    absent = settings.state == "absent"
    plan = _absent(settings, evidence) if absent else _present(settings, evidence)
    return replace(plan, resources=_resources(plan, settings.state))


def _resources(plan: ContainerRuntimePlan, state: str) -> tuple[resources.Resource, ...]:
    names = [name for stage in plan.packages for name in stage]
    daemon = {
        "path": DAEMON_JSON,
        "settings": dict(plan.daemon or {}),
        "validate": list(plan.validate),
        "remember": "/var/lib/apiary/container_runtime.json",
        "state": state,
    }
    docker: dict[str, Any] = {"restart_after": [f"json_settings {DAEMON_JSON}"]}
    if state == "present":
        docker |= {"enabled": True, "state": "started"}
    requested = plan.daemon is not None
    gone = [SERVICE] if plan.service_found and not plan.service else []
    selinux = {"kind": "command", "argv": ["setsebool", "-P", plan.selinux, "on"]}
    return (
        *([{"kind": "packages", "manager": plan.manager, "names": names}] if names else []),
        *resources.services(gone, state="stopped", enabled=False),
        *resources.files(plan.files),
        *([{"kind": "json_settings", **daemon}] if requested else []),
        *resources.services([SERVICE] if plan.service else [], state="started", enabled=True),
        *resources.services(["docker.service"] if requested else [], **docker),
        # The plan has read the boolean.
        *([selinux] if plan.selinux is not None else []),
    )


def _present(settings: Settings, evidence: Evidence) -> ContainerRuntimePlan:
    host = system(evidence, settings.engine)
    engine = engine_of(evidence, settings.engine, host.package)
    findings = [*_engine_findings(settings, evidence, host, engine)]
    findings += config_findings(settings, evidence)
    checks: list[Check] = []
    files = list(config_files(settings))
    skipped: tuple[Skipped, ...] = ()
    if settings.cdi_enabled:
        wanted = names.specification(evidence, engine)
        checks.append(names.check_rivals(evidence))
        files += [names.program(), names.unit(wanted), HostFile(SPECIFICATION, wanted.text)]
        if not wanted.devices:
            message = "found no GPU that the kernel driver serves, so containers get none"
            findings.append(Finding("CONTAINER-NO-GPU", evidence.host, message))
    else:
        files += [HostFile(path, None) for path in (SPECIFICATION, UNIT, PROGRAM)]
        skipped = (Skipped("CDI", "container_runtime_cdi_enabled is false"),)
    daemon = None
    if settings.engine == "docker":
        daemon = daemon_settings(settings, engine, evidence)
    devices = tuple(names.devices_of(evidence))
    checks += _check_nodes(evidence, devices)
    findings += _restart_findings(daemon, evidence)
    missing = settings.install_enabled and engine.installed is None and bool(host.packages)
    return ContainerRuntimePlan(
        files=tuple(files),
        checks=tuple(checks),
        findings=tuple(findings),
        skipped=skipped,
        engine=settings.engine,
        version=engine.version,
        manager=host.manager,
        refresh=missing and engine.candidate is None,
        packages=(host.packages,) if missing else (),
        daemon=daemon,
        validate=config_validate(engine) if settings.engine == "docker" else (),
        service=settings.cdi_enabled,
        service_found=UNIT in evidence.files,
        selinux=_selinux(evidence),
        gids=names.gids_of(evidence, devices),
    )


def _absent(settings: Settings, evidence: Evidence) -> ContainerRuntimePlan:
    """Return the undo. The engine stays: images and containers of others may live in it."""
    host = system(evidence, settings.engine)
    files = [*config_files(settings)]
    files += [HostFile(path, None) for path in (SPECIFICATION, UNIT, PROGRAM)]
    return ContainerRuntimePlan(
        files=tuple(files),
        findings=tuple(_restart_findings({}, evidence)),
        skipped=(Skipped(settings.engine, "an engine that is installed stays, with its images"),),
        engine=settings.engine,
        manager=host.manager,
        service_found=UNIT in evidence.files,
        daemon={} if settings.engine == "docker" else None,
    )


def _engine_findings(
    settings: Settings, evidence: Evidence, host: System, engine: Engine
) -> Iterator[Finding]:
    if engine.installed is None and (host.package is None or not settings.install_enabled):
        why = (
            f"{host.name} has no package of {engine.name}"
            if host.package is None
            else "it is not installed, and container_runtime_install_enabled is false"
        )
        yield Finding("CONTAINER-ENGINE-ABSENT", evidence.host, f"found no {engine.name}: {why}")
    if settings.cdi_enabled and engine.too_old:
        where = "installed" if engine.installed else f"what {host.name} has"
        yield Finding(
            "CONTAINER-ENGINE-OLD",
            evidence.host,
            f"found {engine.name} {engine.version} ({where}), expected at least "
            f"{engine.facts['minimum']}, which knows GPUs by name (CDI)",
            source=engine.facts["minimum_source"],
        )


def _restart_findings(daemon: Any, evidence: Evidence) -> Iterator[Finding]:
    """Refuse what would restart Docker beneath containers that run, unless it lets them live."""
    said = evidence.commands.get("docker_containers")
    running = len(said.stdout.split()) if said and said.exit == 0 else 0
    if daemon is None or not running or daemon_json(evidence).get("live-restore") is True:
        return
    if daemon and daemon_differs(daemon, evidence):
        yield Finding(
            "CONTAINER-RUNNING",
            evidence.host,
            f"{DAEMON_JSON} would change, which restarts Docker, and {running} containers run",
        )


def _check_nodes(evidence: Evidence, devices: tuple[Any, ...]) -> Iterator[Check]:
    """Yield whether somebody beside root may use the GPUs: one group, by number, has them all."""
    nodes = names.node_groups(evidence)
    paths = ["/dev/kfd", *(device.nodes[0] for device in devices)] if devices else []
    absent = [path for path in paths if path not in nodes]
    groups = sorted({nodes[path][1] for path in paths if path in nodes})
    # Mode 0666 gives everybody access: AMD's udev rule for hosts that nobody shares.
    closed = [path for path in paths if path in nodes and nodes[path][0] not in ("660", "666")]
    if not paths:
        state: CheckState = "skip"
        found = "no GPU"
    elif absent or closed or len(groups) != 1:
        state = "fail"
        found = (
            f"no {', '.join(absent)}"
            if absent
            else f"groups {', '.join(map(str, groups))}"
            + (f"; {', '.join(closed)} closed to them" if closed else "")
        )
    else:
        state, found = "pass", f"group {groups[0]}"
    yield Check(
        "CONTAINER-GROUP",
        "/dev/kfd, /dev/dri/renderD*",
        state,
        found,
        "one group that may read and write them",
    )


def _selinux(evidence: Evidence) -> str | None:
    """Return the boolean that has to be turned on, where SELinux enforces and it is off."""
    boolean: str = knowledge(FACTS)["selinux"]["boolean"]
    mode, value = (
        output.stdout.strip()
        if (output := evidence.commands.get(name)) and output.exit == 0
        else ""
        for name in ("selinux_mode", "selinux_boolean")
    )
    return boolean if mode == "Enforcing" and not value.endswith("on") else None
