# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a replica may take until it answers, from its weights and what they are read from."""

from __future__ import annotations

import dataclasses

from ..deployment import Deployment
from ..documents import knowledge
from ..model.types import Architecture
from ..model.weights import checkpoint_bytes
from .types import Plan, Replica


def with_start_timeout(deployment: Deployment, architecture: Architecture) -> Deployment:
    """Return the deployment with its start timeout; what it says itself stands."""
    if deployment.limits.start_timeout_seconds is not None:
        return deployment
    seconds = computed(deployment, architecture)
    limits = dataclasses.replace(deployment.limits, start_timeout_seconds=seconds)
    return dataclasses.replace(deployment, limits=limits)


def computed(deployment: Deployment, architecture: Architecture) -> int:
    """Return the seconds that a start may take, by knowledge/start.yml."""
    facts = knowledge("start.yml")
    weights = checkpoint_bytes(architecture) or 0
    speed = deployment.model.read_mb_per_second or int(facts["read_mb_per_second"]["value"])
    reading = int(facts["reads"]["value"]) * weights // (speed * 10**6)
    needed = int(facts["beside_weights_seconds"]["value"]) + reading
    return max(needed, int(facts["at_least_seconds"]["value"]))


def start_timeout(plan: Plan, replica: Replica) -> int:
    """Return the seconds that a planned replica may take to answer."""
    configured = replica.start_timeout_seconds or plan.deployment.limits.start_timeout_seconds
    return configured or computed(plan.deployment, plan.model)
