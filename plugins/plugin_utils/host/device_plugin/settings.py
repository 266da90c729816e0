# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role is asked for, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..types import ConcernPlan, LiveSetting


@dataclass(frozen=True)
class Settings:
    """The role's variables without their prefix; quantities are Kubernetes' (4Gi)."""

    state: Literal["present", "absent"] = "present"
    kubelet_enabled: bool = True
    kubelet_restart_allowed: bool = False
    pod_gpus: tuple[int, ...] = ()
    topology_manager_policy: Literal[
        "auto", "none", "best-effort", "restricted", "single-numa-node"
    ] = "auto"
    memory_manager_enabled: bool = True
    system_memory: str = "16Gi"
    kubelet_memory: str = "4Gi"
    eviction_memory: str = "1Gi"
    system_namespaces: tuple[str, ...] = ("kube-system",)
    naming: Literal["auto", "single", "mixed"] = "auto"
    health_enabled: bool = True
    labeller_enabled: bool = True
    version: str = "1.31.0.9"
    registry: str = "docker.io/rocm"
    digest: str = ""
    labeller_digest: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    dra_version: str = ""
    exporter_version: str = ""


@dataclass(frozen=True)
class DevicePluginPlan(ConcernPlan):
    """What a node gets, and what its cluster gets (``manifests``, as YAML in ``manifests_text``).

    ``restart``: the kubelet is stopped before the files are written and started afterwards.
    """

    node: bool = True
    restart: bool = False
    live: tuple[LiveSetting, ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    manifests_text: str = ""
