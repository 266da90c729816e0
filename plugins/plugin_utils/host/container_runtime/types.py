# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `container_runtime` asks for, and what it is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..types import ConcernPlan

EngineName = Literal["podman", "docker"]

SPECIFICATION = "/etc/cdi/amd.json"
PROGRAM = "/usr/libexec/apiary/cdi"
SERVICE = "apiary-cdi.service"
UNIT = f"/etc/systemd/system/{SERVICE}"
CONTAINERS_CONF = "/etc/containers/containers.conf.d/90-apiary.conf"
REGISTRIES_CONF = "/etc/containers/registries.conf.d/90-apiary.conf"
DAEMON_JSON = "/etc/docker/daemon.json"
LIMITED_SERVICES = ("containerd.service", "docker.service")


@dataclass(frozen=True)
class Mirror:
    """Where images of a registry are asked for first; both are host names with a path at most."""

    registry: str
    mirror: str


@dataclass(frozen=True)
class Settings:
    """What is asked.

    ``shm_size`` is as engines write it ("16g"); ``open_files`` is a count, ``log_size_mib`` of one
    file of a container's log. ``docker_settings`` are merged into daemon.json as they are.
    """

    engine: EngineName = "podman"
    install_enabled: bool = True
    cdi_enabled: bool = True
    memlock_unlimited: bool = True
    open_files: int = 1048576
    shm_size: str = "16g"
    log_size_mib: int = 100
    log_files: int = 5
    mirrors: tuple[Mirror, ...] = ()
    docker_settings: dict[str, Any] = field(default_factory=dict)
    state: Literal["present", "absent"] = "present"


@dataclass(frozen=True)
class ContainerRuntimePlan(ConcernPlan):
    """What to do, in the order of the fields.

    ``refresh``: the package manager does not know the engine yet, and so not its version; decide
    again once its lists are updated. ``packages`` are those that are
    missing, in stages. ``daemon`` are the settings to merge into daemon.json, None where Docker is
    not requested; ``validate`` lets Docker judge them, and a change of ``restart_files`` restarts
    it, too. ``service`` is whether the boot service is to be there, ``service_found`` that it is.
    ``selinux`` is the boolean's name where it has to be turned on. ``gids`` are the numeric groups
    of the GPUs' nodes, for containers that are given groups (`--group-add`).
    """

    engine: EngineName = "podman"
    version: str | None = None
    manager: Literal["apt", "dnf"] = "apt"
    refresh: bool = False
    packages: tuple[tuple[str, ...], ...] = ()
    daemon: Mapping[str, Any] | None = None
    validate: tuple[str, ...] = ()
    restart_files: tuple[str, ...] = ()
    service: bool = False
    service_found: bool = False
    selinux: str | None = None
    gids: tuple[int, ...] = ()
