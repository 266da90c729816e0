# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one host gets: `apiary.plan/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    Layout,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import Reason
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Memory
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement


@dataclass(frozen=True)
class Replica:
    """One engine process: its unit, GPUs (keys), CPUs (cpulist), memory nodes and command."""

    unit: str
    port: int
    gpus: tuple[str, ...]
    cpus: str | None
    memory_nodes: tuple[int, ...]
    env: dict[str, str]
    argv: tuple[str, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Plan:
    """All of a deployment for one host: the only input of the `replicas` role."""

    SCHEMA: ClassVar[str] = "apiary.plan/v1"

    host: str
    deployment: Deployment
    layout: Layout
    replicas: tuple[Replica, ...]
    placement: Placement
    memory: Memory
    target: str
    findings: tuple[Finding, ...] = ()
