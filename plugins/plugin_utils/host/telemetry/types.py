# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `telemetry` asks for, and what it is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...findings import Finding
from ..types import HostFile

Method = Literal["package", "container", "none"]
State = Literal["present", "absent"]


@dataclass(frozen=True)
class Settings:
    """The inputs of the role, without its prefix.

    ``gpu_host`` is False for a router. ``listen`` is the address that exporters are reached at.
    ``gpus`` is how many the host is to have, None for what its board carries; ``driver_version``
    AMD's name of the driver's release, None where nobody compares. ``arguments`` are the words that
    the kernel is to be told, ``mounts`` where weights lie. With ``web`` node_exporter speaks TLS
    and wants a password. ``python`` is the host's interpreter.
    """

    state: State = "present"
    gpu_host: bool = True
    listen: str = "127.0.0.1"
    node_port: int = 9100
    node_collectors: tuple[str, ...] = ()
    node_package: str | None = None
    amd_method: Literal["auto", "package", "container", "none"] = "auto"
    amd_version: str | None = None
    amd_port: int = 5000
    amd_repository_url: str | None = None
    amd_suite: str | None = None
    amd_key_url: str | None = None
    amd_key_fingerprint: str | None = None
    amd_engine: Literal["docker", "podman"] = "podman"
    amd_registry: str | None = None
    amd_digest: str | None = None
    amd_privileged: bool = False
    gpus: int | None = None
    driver_version: str | None = None
    arguments: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    interval_seconds: int | None = None
    web: bool = False
    python: str = "/usr/bin/python3"


@dataclass(frozen=True)
class Service:
    """A service to be configured: ``main`` is its file that has our mark.

    ``program`` is what tells that its package is installed, which is to be ``package``; None for a
    unit of our own.
    """

    unit: str
    main: str
    files: tuple[HostFile, ...]
    package: str | None = None
    program: str | None = None


@dataclass(frozen=True)
class TelemetryHostPlan:
    """What to do on one host; ``node`` comes first, then AMD's exporter, then our own timer.

    ``absent`` are services of another method that go.
    """

    method: Method
    node: Service
    textfile: Service
    amd: tuple[Service, ...] = ()
    absent: tuple[Service, ...] = ()
    directory: str = ""
    expected: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
