# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary render --target kubernetes` is told beside the plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KubernetesOptions:
    """What a cluster needs to know beside the plan; ``None`` is taken from the plan.

    ``render_gid`` is the number of the node's group render. ``cpus`` and ``memory`` are each
    replica's. ``user`` is a uid; without it the image's own user runs the engine.
    """

    namespace: str = "apiary"
    render_gid: int | None = None
    user: int | None = None
    cpus: int | None = None
    memory: str | None = None
    resource: str = "amd.com/gpu"
    weights_claim: str | None = None
    secret: str | None = None


@dataclass(frozen=True)
class Sizes:
    """What one replica requests, and is limited to."""

    cpus: int
    memory_gib: int
    shared_memory_gib: int
