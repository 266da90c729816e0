# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the operator asks for, checked in shape alone: `apiary.deployment/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


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
