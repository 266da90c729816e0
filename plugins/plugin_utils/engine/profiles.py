# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: what a deployment is sized for, where its own limits do not say (profiles.yml)."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..deployment import Deployment
from ..documents import knowledge


def names() -> tuple[str, ...]:
    """Return the names of the profiles, gentlest first."""
    return tuple(_profiles())


def _profiles() -> dict[str, dict[str, Any]]:
    profiles: dict[str, dict[str, Any]] = knowledge("vllm/profiles.yml")["profiles"]
    return profiles


def steps(profile: str | None) -> int:
    """Return the scheduler steps that the published profile has; 0 without a profile."""
    return int(_profiles().get(profile or "", {}).get("scheduler_steps", 0))


def with_profile(deployment: Deployment) -> Deployment:
    """Return the deployment with its profile's limits where it leaves them open.

    Whatever is computed from the limits (recipe, memory) must be computed from these.
    """
    chosen = _profiles().get(deployment.profile or "")
    if chosen is None:
        return deployment
    limits = deployment.limits
    open_ = {
        name: value for name, value in chosen["limits"].items() if getattr(limits, name) is None
    }
    return dataclasses.replace(deployment, limits=dataclasses.replace(limits, **open_))
