# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each role does with its plan, as steps to be looked at: the same modules and arguments.

A role that gets another task has it here, too; tests/site goes through all of them by drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import to_document
from ..findings import Finding
from ..host.resources import with_overrides
from ..render.replicas import ReplicasPlan
from .survey import Concern, Step

Options = Mapping[str, Any]


def concern_of(name: str, plan: Any, options: Options, asked: str) -> Concern:
    """Return a concern with what its role would do by this plan and these options."""
    resources = with_overrides(name, plan.resources, options)
    return Concern(
        name,
        asked,
        (Step("converge", {"resources": resources}),),
        (),
        plan.reboot,
        # Information is in the plans; a survey has what somebody may have to act on.
        tuple(one for one in plan.findings if one.severity != "info"),
        _unsure(name, options),
    )


def _unsure(name: str, options: Options) -> bool:
    """Say whether a role does what no look tells of: copying models, asking a cluster."""
    if name == "weight_cache":
        here = options["weight_cache_state"] == "present"
        return bool(here and options["weight_cache_staged"])
    return bool(name == "device_plugin" and options["device_plugin_apply"])


def replicas_of(
    name: str, plan: ReplicasPlan, options: Options, asked: str, findings: Sequence[Finding] = ()
) -> Concern:
    """Return a deployment's concern: what it is brought to, or its absence."""
    resources = with_overrides("replicas", plan.resources, options)
    told = tuple(item for item in (*findings, *plan.findings) if item.severity != "info")
    step = Step("converge", {"resources": resources})
    return Concern(f"replicas:{name}", asked, (step,), findings=told, unsure=plan.unsure)


def _files(files: Sequence[Any]) -> Step:
    return Step("host_files", {"files": to_document(files)})


def _services(*services: Mapping[str, Any]) -> Step:
    return Step("services", {"services": list(services)})
