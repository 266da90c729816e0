# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's device metrics exporter on a host: by package, as a container, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...documents import knowledge, to_document
from ...evidence.types import Evidence
from ...findings import Finding, error
from ..facts import os_release
from ..program import unit_text
from ..resources import Resource
from ..rocm import host as rocm_host
from ..rocm.types import Key
from ..types import MANAGED, UNITS, HostFile
from .types import Method, Service, Settings

KEY = "/etc/apt/keyrings/apiary-amd-exporter.gpg"
SOURCES = "/etc/apt/sources.list.d/apiary-amd-exporter.sources"
PREFERENCES = "/etc/apt/preferences.d/apiary-amd-exporter"


def facts() -> Mapping[str, Any]:
    """Return what knowledge has on AMD's exporter."""
    found: Mapping[str, Any] = knowledge("telemetry/exporters.yml")["amd"]
    return found


def version(settings: Settings) -> str:
    """Return the version that is wanted; raise MONITORING-FLOOR for one that will not do."""
    wanted = settings.amd_version or str(facts()["version"])
    floor = facts()["floor"]
    if _order(wanted) < _order(floor["version"]):
        raise error(
            "MONITORING-FLOOR",
            f"AMD's metrics exporter {wanted}",
            f"{floor['version']} is the oldest that will do: {floor['why']}",
            version=floor["version"],
        )
    return wanted


def _order(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def suite(settings: Settings, evidence: Evidence) -> str | None:
    """Return the suite of AMD's repository that the host's system has, None if there is none."""
    release = os_release(evidence)
    known: Mapping[str, str] = facts()["suites"].get(release.id, {})
    return settings.amd_suite or known.get(release.version)


def has_package(system: str | None) -> bool:
    """Say whether AMD has a package for a system, as surveys name it: `ubuntu 24.04`.

    None, a host that nobody surveyed, may be any.
    """
    if system is None:
        return True
    name, _space, release = system.partition(" ")
    return release in facts()["suites"].get(name, {})


def way(asked: str, image: bool, package: bool) -> Method:
    """Return how the exporter comes to a GPU host by the way that is asked for, or that it can't.

    ``image`` says whether the container's digest is known, ``package`` whether AMD has a package
    for the host.
    """
    if asked == "package" or (asked == "auto" and package):
        return "package"
    return "container" if asked in ("auto", "container") and image else "none"


def method(settings: Settings, evidence: Evidence) -> tuple[Method, list[Finding]]:
    """Return how the exporter comes to the host, and what a person should know of it."""
    asked = settings.amd_method
    if not settings.gpu_host or asked == "none":
        return "none", []
    release = suite(settings, evidence)
    version(settings)
    chosen = way(asked, bool(settings.amd_digest), bool(release))
    if chosen == "package" and not release:
        raise error(
            "MONITORING-SYSTEM",
            evidence.host,
            f"AMD has no package of its metrics exporter for {os_release(evidence).name}",
            source=facts()["source"],
        )
    if chosen != "none":
        return chosen, []
    refusal = Finding(
        "MONITORING-IMAGE",
        evidence.host,
        "AMD's metrics exporter would run as a container here, and telemetry_amd_digest is empty",
    )
    return "none", [refusal]


def configuration(settings: Settings) -> str:
    """Return the exporter's config.json; empty lists of AMD's own defaults would export all."""
    known = facts()
    health = known["health"]
    document = {
        "ServerPort": settings.amd_port,
        "CommonConfig": {
            "MetricsFieldPrefix": known["prefix"]["value"],
            "HealthService": {"Enable": True, "PollingRate": health["polling"]},
            "Debug": {"EnableAPI": False},
        },
        "GPUConfig": {
            "Fields": known["fields"]["names"],
            "Labels": [],
            "CustomLabels": {},
            # It slows what serves, and keeps rocprof out.
            "ProfilerMetrics": {"all": False},
            "HealthThresholds": {
                **health["thresholds"],
                "GPU_CPER_MAX_AGE": health["fatal_record_age"],
            },
        },
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def services(settings: Settings, chosen: Method) -> tuple[Service, ...]:
    """Return the services of one way, in the order in which they start."""
    if chosen == "package":
        return _packaged(settings)
    return (_container(settings),) if chosen == "container" else ()


def all_services(settings: Settings) -> tuple[Service, ...]:
    """Return every service that some setting brings to a host, the exporter before its agent."""
    return (*reversed(_packaged(settings)), _container(settings)) if settings.gpu_host else ()


def _packaged(settings: Settings) -> tuple[Service, ...]:
    known = facts()
    agent, exporter = known["units"]
    config = HostFile(known["config"], configuration(settings))
    drop_in = unit_text(
        "amd-exporter.conf",
        mark=MANAGED,
        program=known["program"],
        config=known["config"],
        listen=settings.listen,
    )
    first = unit_text("amd-exporter-agent.conf", mark=MANAGED)
    return (
        Service(
            agent,
            f"{UNITS}/{agent}.d/50-apiary.conf",
            (HostFile(f"{UNITS}/{agent}.d/50-apiary.conf", first),),
            known["package"],
            known["agent_program"],
        ),
        Service(
            exporter,
            f"{UNITS}/{exporter}.d/50-apiary.conf",
            (HostFile(f"{UNITS}/{exporter}.d/50-apiary.conf", drop_in), config),
            known["package"],
            known["program"],
        ),
    )


def _container(settings: Settings) -> Service:
    known = facts()["container"]
    unit, engine = known["unit"], settings.amd_engine
    name = unit.removesuffix(".service")
    image = f"{settings.amd_registry or known['image']}@{settings.amd_digest or 'none'}"
    config = "/etc/apiary/amd-exporter/config.json"
    rights = (
        ["--privileged"]
        if settings.amd_privileged
        else ["--cap-drop=ALL", "--security-opt=no-new-privileges"]
    )
    words = [
        f"/usr/bin/{engine} run --rm --name {name} --log-driver=journald --pids-limit=512",
        *rights,
        "--device=/dev/kfd",
        "--device=/dev/dri",
        "--volume=/sys:/sys:ro",
        "--volume=/etc/apiary/amd-exporter:/etc/metrics:ro",
        f"--publish={_published(settings.listen)}:{settings.amd_port}:{settings.amd_port}",
        image,
    ]
    command = " \\\n  ".join(words)
    text = unit_text(
        unit, mark=MANAGED, engine=engine, name=name, command=command, sandbox=_client(engine)
    )
    path = f"{UNITS}/{unit}"
    return Service(unit, path, (HostFile(path, text), HostFile(config, configuration(settings))))


def _client(engine: str) -> str:
    """Return what Docker's client may not do; Podman makes the container itself."""
    entries = (
        knowledge("serving/containers.yml")["sandbox"]["entries"] if engine == "docker" else {}
    )
    return "".join(f"{name}={value}\n" for name, value in entries.items())


def _published(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def repository(settings: Settings, evidence: Evidence) -> tuple[Resource, Resource]:
    """Return AMD's repository, pinned to one version, and the package of it."""
    known = facts()
    wanted = version(settings)
    key = knowledge("host/rocm/streams.yml")["driver"]["key"]
    base = (settings.amd_repository_url or known["repository"]).rstrip("/")
    name, pattern = known["package"], f"{wanted}*"
    lines = {
        "Types": "deb",
        "URIs": f"{base}/{wanted}",
        "Suites": suite(settings, evidence),
        "Components": "main",
        "Architectures": "amd64",
        "Signed-By": KEY,
    }
    source = MANAGED + "".join(f"{field}: {value}\n" for field, value in lines.items())
    pin = f"{MANAGED}Package: {name}\nPin: version {pattern}\nPin-Priority: 1001\n"
    package = {"name": name, "version": pattern, "spec": f"{name}={pattern}"}
    common = {"name": "amd-exporter", "manager": "apt", "packages": [package]}
    own = Key(
        settings.amd_key_url or key["url"],
        KEY,
        (settings.amd_key_fingerprint or key["fingerprint"]).replace(" ", "").upper(),
        "binary",
    )
    files = (HostFile(SOURCES, source), HostFile(PREFERENCES, pin))
    installed = (rocm_host.read(evidence).version(name) or "").startswith(wanted)
    return (
        {"kind": "repository", **common, "keys": [to_document(own)], "files": to_document(files)},
        {"kind": "transaction", **common, "install": [[] if installed else [package["spec"]]]},
    )
