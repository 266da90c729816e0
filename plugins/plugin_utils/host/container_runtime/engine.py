# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `container_runtime` requests; a host's engine, mirrors, files and daemon.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ....module_utils.evidence.host import without_credentials
from ....module_utils.resources import json_settings
from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding, error
from ..facts import os_release, output
from ..types import ConcernPlan, HostFile

FACTS = "host/container_runtime.yml"
_VERSION = re.compile(r"(?<!\d)(?:\d+:)?(\d+(?:\.\d+)+)")
_APT_CANDIDATE = re.compile(r"^ +Candidate: (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class System:
    """What a release means for packages: first the engine's own; (): the distribution has none."""

    name: str
    manager: Literal["apt", "dnf"]
    packages: tuple[str, ...]

    @property
    def package(self) -> str | None:
        """The package whose version is the engine's."""
        return self.packages[0] if self.packages else None


@dataclass(frozen=True)
class Engine:
    """An engine: the installed version, and that which the package manager would install."""

    name: EngineName
    installed: str | None
    candidate: str | None

    @property
    def version(self) -> str | None:
        """The version that the host has or will have; None is not known yet."""
        return self.installed or self.candidate

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of this engine."""
        engines: Mapping[str, Mapping[str, Any]] = knowledge(FACTS)["engines"]
        return engines[self.name]

    @property
    def too_old(self) -> bool:
        """Whether the version is known and below what CDI needs."""
        return self.version is not None and order(self.version) < order(self.facts["minimum"])

    @property
    def specification(self) -> str:
        """The newest CDI specification that this version is known to read."""
        known: Mapping[str, str] = self.facts["specifications"]
        lowest = next(iter(known))
        have = order(self.version or lowest)
        fitting = [number for first, number in known.items() if order(first) <= have]
        return fitting[-1] if fitting else known[lowest]


def order(version: str) -> tuple[int, ...]:
    """Return a version so that it compares as versions do; what follows the numbers is left out."""
    match = _VERSION.match(version)
    return tuple(int(part) for part in (match.group(1) if match else version).split("."))


def system(evidence: Evidence, engine: EngineName) -> System:
    """Return the host's family of systems; raise CONTAINER-OS for one that is not known."""
    release = os_release(evidence)
    families = {key: each for key, each in knowledge(FACTS)["families"].items() if key != "source"}
    for facts in families.values():
        if release.id in facts["releases"]:
            return System(
                release.name,
                cast(Literal["apt", "dnf"], facts["manager"]),
                tuple(facts["packages"][engine])
                + tuple(
                    facts.get("since", {})
                    .get(release.id, {})
                    .get(release.major, {})
                    .get(engine, ())
                ),
            )
    known = sorted(name for facts in families.values() for name in facts["releases"])
    raise error(
        "CONTAINER-OS", evidence.host, f"runs {release.name}, expected one of {', '.join(known)}"
    )


def engine_of(evidence: Evidence, name: EngineName, package: str | None) -> Engine:
    """Return the engine as it is on the host, or as the package manager would install it."""
    said = evidence.commands.get(f"{name}_version")
    installed = _VERSION.search(said.stdout) if said and said.exit == 0 else None
    return Engine(name, installed.group(1) if installed else None, _candidate(evidence, package))


def _candidate(evidence: Evidence, package: str | None) -> str | None:
    if package is None:
        return None
    found = None
    apt, dnf = (output(evidence, f"engines_{manager}") for manager in ("apt", "dnf"))
    if part := re.search(rf"^{re.escape(package)}:\n((?: .*\n?)*)", apt, re.MULTILINE):
        found = _APT_CANDIDATE.search(part.group(1))
    elif line := re.search(rf"^{re.escape(package)}\.\S+ +(\S+)", dnf, re.MULTILINE):
        found = line
    version = _VERSION.match(found.group(1)) if found else None
    return version.group(1) if version else None


EngineName = Literal["podman", "docker"]

SPECIFICATION = "/etc/cdi/amd.json"
PROGRAM = "/usr/libexec/apiary/cdi"
SERVICE = "apiary-cdi.service"
UNIT = f"/etc/systemd/system/{SERVICE}"
REGISTRIES_CONF = "/etc/containers/registries.conf.d/90-apiary.conf"
DAEMON_JSON = "/etc/docker/daemon.json"


@dataclass(frozen=True)
class Mirror:
    """Where images of a registry are asked for first; both are host names with a path at most."""

    registry: str
    mirror: str


@dataclass(frozen=True)
class Settings:
    """What is asked; ``docker_settings`` are merged into daemon.json as they are."""

    engine: EngineName = "podman"
    install_enabled: bool = True
    cdi_enabled: bool = True
    mirrors: tuple[Mirror, ...] = ()
    docker_settings: dict[str, Any] = field(default_factory=dict)
    state: Literal["present", "absent"] = "present"


@dataclass(frozen=True)
class ContainerRuntimePlan(ConcernPlan):
    """What to do, in the order of the fields.

    ``refresh``: the package manager does not know the engine yet, and so not its version; decide
    again once its lists are updated. ``packages`` are those that are missing, in stages. ``daemon``
    are the settings to merge into daemon.json, None where Docker is not requested; ``validate``
    lets Docker judge them. ``service`` is whether the boot service is to be there,
    ``service_found`` that it is. ``selinux`` is the boolean's name where it has to be turned on.
    ``gids`` are the numeric groups of the GPUs' nodes, for containers that are given groups
    (`--group-add`).
    """

    engine: EngineName = "podman"
    version: str | None = None
    manager: Literal["apt", "dnf"] = "apt"
    refresh: bool = False
    packages: tuple[tuple[str, ...], ...] = ()
    daemon: Mapping[str, Any] | None = None
    validate: tuple[str, ...] = ()
    service: bool = False
    service_found: bool = False
    selinux: str | None = None
    gids: tuple[int, ...] = ()


_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._/-]+)?")
# Docker asks mirrors for the images of this registry only.
_DOCKER_HUB = "docker.io"
_HEADER = "# Written by the role container_runtime; a later file can say otherwise.\n"


def config_findings(settings: Settings, evidence: Evidence) -> Iterator[Finding]:
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


def config_files(settings: Settings) -> tuple[HostFile, ...]:
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


def config_validate(engine: Engine) -> tuple[str, ...]:
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


def daemon_differs(wanted: Mapping[str, Any], evidence: Evidence) -> bool:
    """Return whether daemon.json lacks a wanted value; passwords in addresses are not compared."""
    # Evidence shows such a password as ***.
    document = _without_passwords(daemon_json(evidence))
    leaves = json_settings.leaves(_without_passwords(wanted))
    return any(json_settings.found(document, path) != [value] for path, value in leaves)
