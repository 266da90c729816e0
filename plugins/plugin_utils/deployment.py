# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the operator asks for, checked in shape alone: `apiary.deployment/v1`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
)


@dataclass(frozen=True)
class ModelSpec:
    """Which weights: the hub ``name`` clients ask for and the ``path`` they lie at on the host."""

    name: str
    path: str
    config: str | None = None


@dataclass(frozen=True)
class Layout:
    """How a host is cut: ``replicas`` independent engines of ``tensor_parallel_size`` GPUs each.

    With ``expert_parallel`` the expert-parallel size is the engine's own TP size (EP = TP), so
    two replicas of TP4 are DP2/TP4/EP4 with nothing shared between them.
    """

    tensor_parallel_size: int
    replicas: int = 1
    expert_parallel: bool = False


@dataclass(frozen=True)
class EngineSpec:
    """Which engine runs: its version decides the recipe, ``executable`` starts it on the host.

    ``args`` and ``env`` are the operator's overrides by flag and variable name; ``None`` drops
    an element. ``treat_as`` names the known version whose rules an unknown one gets.
    """

    version: str
    executable: str = "/opt/vllm/bin/vllm"
    name: str = "vllm"
    treat_as: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What the engine is sized for; tokens, sequences and a share of VRAM."""

    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    start_timeout_seconds: int = 3600
    drain_timeout_seconds: int = 60


@dataclass(frozen=True)
class Deployment:
    """What the operator asks for; one document for a whole group of hosts."""

    SCHEMA: ClassVar[str] = "apiary.deployment/v1"

    name: str
    model: ModelSpec
    engine: EngineSpec
    layout: Layout
    limits: Limits = field(default_factory=Limits)
    listen_address: str = "0.0.0.0"  # noqa: S104 - the router is on another host
    base_port: int = 8000
    user: str = "vllm"


_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def check_deployment(deployment: Deployment, subject: str) -> None:
    """Refuse what no host could serve, before any host is looked at.

    ``subject`` names the file or host. Raises ApiaryError with one DEPLOY-VALUE finding per
    wrong field: names must fit a unit and a user name, paths be absolute, numbers in range.
    """
    layout, limits, engine = deployment.layout, deployment.limits, deployment.engine
    last_port = deployment.base_port + layout.replicas - 1
    positive = "a positive whole number"
    checks: list[tuple[bool, str, object, str]] = [
        (
            bool(_NAME.fullmatch(deployment.name)),
            "name",
            deployment.name,
            "lower-case letters, digits and inner dashes, at most 64 (it names units)",
        ),
        (bool(_USER.fullmatch(deployment.user)), "user", deployment.user, "a system user name"),
        (
            deployment.model.path.startswith("/"),
            "model.path",
            deployment.model.path,
            "an absolute path on the host",
        ),
        (
            engine.executable.startswith("/"),
            "engine.executable",
            engine.executable,
            "an absolute path on the host",
        ),
        (engine.name == "vllm", "engine.name", engine.name, "vllm"),
        (
            layout.tensor_parallel_size >= 1,
            "layout.tensor_parallel_size",
            layout.tensor_parallel_size,
            positive,
        ),
        (layout.replicas >= 1, "layout.replicas", layout.replicas, positive),
        (
            deployment.base_port >= 1024 and last_port <= 65535,
            "base_port",
            deployment.base_port,
            "a port from 1024 up that leaves room for every replica below 65536",
        ),
        (
            0 < limits.gpu_memory_utilization <= 1,
            "limits.gpu_memory_utilization",
            limits.gpu_memory_utilization,
            "a share above 0 and up to 1",
        ),
    ]
    for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs"):
        value = getattr(limits, name)
        checks.append((value is None or value >= 1, f"limits.{name}", value, positive))
    for name in ("start_timeout_seconds", "drain_timeout_seconds"):
        value = getattr(limits, name)
        checks.append((value >= 0, f"limits.{name}", value, "zero or more seconds"))
    for name, text in (
        ("model.name", deployment.model.name),
        ("model.path", deployment.model.path),
        ("engine.executable", engine.executable),
        ("listen_address", deployment.listen_address),
    ):
        checks.append((text.isprintable() and bool(text), name, text, "one line of printable text"))
    wrong = [
        Finding(
            "DEPLOY-VALUE",
            "error",
            subject,
            f"field {name}: found {found!r}, expected {expected}",
            f"set {name} to {expected}",
        )
        for right, name, found, expected in checks
        if not right
    ]
    if wrong:
        raise ApiaryError(*wrong)
