# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `container_runtime` requests and is to do; the engine a host has, or would get."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import error
from ..facts import os_release, output
from ..types import ConcernPlan

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
