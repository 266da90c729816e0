# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container engine is told: mirrors, and what operators set; files and daemon.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....module_utils.evidence.host import without_credentials
from ....module_utils.resources import json_settings
from ...evidence.types import Evidence
from ...findings import Finding
from ..types import HostFile
from .engine import DAEMON_JSON, REGISTRIES_CONF, Engine, Settings, order

_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._/-]+)?")
# Docker asks mirrors for the images of this registry only.
_DOCKER_HUB = "docker.io"
_HEADER = "# Written by the role container_runtime; a later file can say otherwise.\n"


def findings(settings: Settings, evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with what was asked, or with the daemon's file as it is."""
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
    problem = evidence.unreadable.get(DAEMON_JSON) or _read(evidence)[1]
    if problem:
        yield Finding("CONTAINER-DAEMON-JSON", DAEMON_JSON, f"cannot be read: {problem}")


def _read(evidence: Evidence) -> tuple[dict[str, Any], str | None]:
    """Return Docker's file, an empty one where it is missing or wrong, and what is wrong."""
    try:
        document = json.loads(evidence.files.get(DAEMON_JSON) or "{}")
    except ValueError as failure:
        return {}, str(failure)
    return (document, None) if isinstance(document, dict) else ({}, "found no object")


def daemon_json(evidence: Evidence) -> dict[str, Any]:
    """Return Docker's file as it is; an empty one where it is missing or wrong."""
    return _read(evidence)[0]


def daemon_settings(settings: Settings, engine: Engine, evidence: Evidence) -> dict[str, Any]:
    """Return what is to be in daemon.json; what the operator sets there himself wins."""
    wanted: dict[str, Any] = {}
    by_default = engine.facts["cdi_by_default"]
    if settings.cdi_enabled and engine.version and order(engine.version) < order(by_default):
        wanted["features"] = {"cdi": True}
    if settings.mirrors:
        wanted["registry-mirrors"] = [f"https://{one.mirror}" for one in settings.mirrors]
    for path, value in json_settings.leaves(settings.docker_settings):
        json_settings.put(wanted, path, [value])
    return wanted


def files(settings: Settings) -> tuple[HostFile, ...]:
    """Return Podman's drop-in; without mirrors, and with Docker, it is to be gone."""
    podman = settings.engine == "podman" and settings.state == "present"
    wanted = podman and settings.mirrors
    return (HostFile(REGISTRIES_CONF, _registries(settings) if wanted else None),)


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
