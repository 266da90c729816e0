# SPDX-License-Identifier: GPL-3.0-or-later

"""The concerns of a host by name: each is a package here with ``Settings`` and ``decide``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ..documents import from_document
from ..evidence.types import Evidence
from ..findings import Finding
from .types import ConcernPlan

# In the order in which a host is made right; each with the scopes of evidence it needs.
CONCERNS: Mapping[str, tuple[str, ...]] = {
    "rocm": ("rocm",),
    "host_tuning": ("gpu", "tuning"),
    "weight_cache": ("weights",),
    "container_runtime": ("gpu", "container"),
    "engine": ("gpu", "engine"),
    "device_plugin": ("gpu", "kubernetes"),
    "reboot": ("reboot",),
}


def decide(concern: str, settings: Mapping[str, Any], evidence: Evidence) -> ConcernPlan:
    """Return a concern's plan for one host; raise ApiaryError for settings that can't be right."""
    package = importlib.import_module(f"{__package__}.{concern}")
    asked = from_document(package.Settings, settings, f"{evidence.host}: {concern}")
    plan: ConcernPlan = package.decide(asked, evidence)
    return plan


def failing(plan: Any) -> list[Finding]:
    """Return a finding for each check that fails, and whose failure no reboot of the plan mends."""
    later = getattr(plan, "after_reboot", ())
    found = (item.finding() for item in plan.checks if item.code not in later)
    return [item for item in found if item is not None and item.severity == "error"]
