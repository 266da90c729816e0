# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container engine is told: limits, shared memory, logs, mirrors; files and daemon.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....module_utils.evidence.host import without_credentials
from ....module_utils.resources import json_settings
from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding
from ..types import HostFile
from .engine import (
    CONTAINERS_CONF,
    DAEMON_JSON,
    FACTS,
    LIMITED_SERVICES,
    REGISTRIES_CONF,
    Engine,
    Settings,
    order,
)

_MEBIBYTE = 2**20
_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._/-]+)?")
# Docker asks mirrors for the images of this registry only.
_DOCKER_HUB = "docker.io"
_HEADER = "# Written by the role container_runtime; a later file can say otherwise.\n"


def findings(settings: Settings, evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with what was asked, or with the daemon's file as it is."""
    limits = knowledge(FACTS)["limits"]
    size = size_bytes(settings.shm_size)
    if size is None or size < limits["shm_floor_bytes"]:
        yield Finding(
            "CONTAINER-SHM",
            "container_runtime_shm_size",
            f"found {settings.shm_size!r}, expected a size from "
            f"{limits['shm_floor_bytes'] // 1000**3}g up",
            source=limits["shm_source"],
            minor=size is not None,
        )
    for name in ("open_files", "log_size_mib", "log_files"):
        number = getattr(settings, name)
        if number < 1:
            yield Finding(
                "CONTAINER-NUMBER",
                f"container_runtime_{name}",
                f"found {number}, expected at least 1",
            )
    for mirror in settings.mirrors:
        foreign = settings.engine == "docker" and mirror.registry != _DOCKER_HUB
        names = (mirror.registry, mirror.mirror)
        # Docker takes no path of a mirror, and then does not start.
        path = settings.engine == "docker" and "/" in mirror.mirror
        if foreign or path or not all(_REGISTRY.fullmatch(name) for name in names):
            yield Finding(
                "CONTAINER-MIRROR",
                "container_runtime_mirrors",
                # A user and password before the @ stay untold.
                f"found {names[0].split('@')[-1]} from {names[1].split('@')[-1]}, expected host "
                "names without a scheme or user"
                + (
                    f"; Docker mirrors {_DOCKER_HUB} only, and has no path"
                    if foreign or path
                    else ""
                ),
            )
    if settings.engine == "docker":
        yield from _daemon_findings(evidence)


def _daemon_findings(evidence: Evidence) -> Iterator[Finding]:
    try:
        document = json.loads(evidence.files.get(DAEMON_JSON) or "{}")
        problem = None if isinstance(document, dict) else "found no object"
    except ValueError as failure:
        problem = str(failure)
    if DAEMON_JSON in evidence.unreadable:
        problem = evidence.unreadable[DAEMON_JSON]
    if problem:
        yield Finding("CONTAINER-DAEMON-JSON", DAEMON_JSON, f"cannot be read: {problem}")


def size_bytes(text: str) -> int | None:
    """Return a size as engines write it ("16g") in bytes, None if it is none.

    Podman counts in powers of 1000, Docker of 1024; the lower one is returned.
    """
    match = _SIZE.fullmatch(text)
    return int(match.group(1)) * _FACTORS[match.group(2).lower()] if match else None


def daemon_json(evidence: Evidence) -> dict[str, Any]:
    """Return Docker's file as it is; an empty one where it is missing or wrong."""
    try:
        document = json.loads(evidence.files.get(DAEMON_JSON) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def daemon_settings(settings: Settings, engine: Engine, evidence: Evidence) -> dict[str, Any]:
    """Return what is to be in daemon.json; what the operator sets there himself wins."""
    names = {"nofile": settings.open_files}
    if settings.memlock_unlimited:
        names["memlock"] = -1
    wanted: dict[str, Any] = {
        "default-ulimits": {
            name: {"Name": name, "Soft": limit, "Hard": limit} for name, limit in names.items()
        },
        "default-shm-size": settings.shm_size,
    }
    by_default = engine.facts["cdi_by_default"]
    if settings.cdi_enabled and engine.version and order(engine.version) < order(by_default):
        wanted["features"] = {"cdi": True}
    # The operator's driver of logs, as asked for here or as it is; Docker's own is json-file.
    found = {**daemon_json(evidence), **settings.docker_settings}
    if found.get("log-driver", "json-file") in engine.facts["limited_logs"]:
        wanted["log-opts"] = {
            "max-file": str(settings.log_files),
            "max-size": f"{settings.log_size_mib}m",
        }
    if settings.mirrors:
        wanted["registry-mirrors"] = [f"https://{one.mirror}" for one in settings.mirrors]
    for path, value in json_settings.leaves(settings.docker_settings):
        json_settings.put(wanted, path, [value])
    return wanted


def files(settings: Settings) -> tuple[HostFile, ...]:
    """Return the engine's drop-ins; those of the other one, and unwanted ones, are to be gone."""
    podman = settings.engine == "podman" and settings.state == "present"
    docker = settings.engine == "docker" and settings.state == "present"
    limits = "[Service]\nLimitMEMLOCK=infinity\n" if settings.memlock_unlimited else None
    return (
        HostFile(CONTAINERS_CONF, _containers_conf(settings) if podman else None),
        HostFile(REGISTRIES_CONF, _registries(settings) if podman and settings.mirrors else None),
        *(
            HostFile(limits_file(service), _HEADER + limits if docker and limits else None)
            for service in LIMITED_SERVICES
        ),
    )


def limits_file(service: str) -> str:
    """Return the path of our drop-in for a service."""
    return f"/etc/systemd/system/{service}.d/90-apiary-limits.conf"


def _containers_conf(settings: Settings) -> str:
    ulimits = [f"nofile={settings.open_files}:{settings.open_files}"]
    if settings.memlock_unlimited:
        ulimits.insert(0, "memlock=-1:-1")
    return (
        _HEADER
        + "[containers]\n"
        + f"default_ulimits = {json.dumps(ulimits)}\n"
        + f"shm_size = {json.dumps(settings.shm_size)}\n"
        # For logs in files; journald has limits of its own.
        + f"log_size_max = {settings.log_size_mib * _MEBIBYTE}\n"
    )


def _registries(settings: Settings) -> str:
    blocks = [
        f"[[registry]]\nlocation = {json.dumps(one.registry)}\n"
        f"[[registry.mirror]]\nlocation = {json.dumps(one.mirror)}\n"
        for one in settings.mirrors
    ]
    return _HEADER + "\n".join(blocks)


def validate(engine: Engine) -> tuple[str, ...]:
    """Return the command with which Docker judges daemon.json, where its version has one."""
    since = engine.facts.get("validates")
    if since is None or engine.version is None or order(engine.version) < order(since):
        return ()
    return ("dockerd", "--validate", "--config-file", "%s")


def _without_passwords(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {_without_passwords(key): _without_passwords(one) for key, one in value.items()}
    return [_without_passwords(one) for one in value] if isinstance(value, list) else value


def differs(wanted: Mapping[str, Any], evidence: Evidence) -> bool:
    """Return whether daemon.json lacks a wanted value; passwords in addresses are not compared."""
    # Evidence shows such a password as ***.
    document = _without_passwords(daemon_json(evidence))
    leaves = json_settings.leaves(_without_passwords(wanted))
    return any(json_settings.found(document, path) != [value] for path, value in leaves)
