# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is tuned on a host, and what else is there that stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import error

_PLAN = re.compile(r"/etc/apiary/[^/]+/plan[.]json")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Scope:
    """The deployment that is tuned, and its neighbours on the host, as documents.

    ``others`` are the other deployments as the variables want them, ``waiting`` those of them that
    the host does not run yet. ``running`` are the plans of the others that it runs: they count as
    they run. ``planned`` are those of the waiting ones.
    """

    deployment: Document
    others: tuple[Document, ...]
    waiting: tuple[Document, ...]
    running: tuple[Document, ...]
    planned: tuple[Document, ...]


def scope(
    host: str,
    plans: Sequence[Document],
    evidence: Document,
    name: str = "",
    workload: str = "",
    load: object = None,
) -> Scope:
    """Return what is tuned and what stays; ``plans`` are those that the variables ask for.

    ``load`` is the SLO or the concurrency. Raises TRIAL-ASKED where what to measure is missing.
    """
    deployments = {plan["deployment"]["name"]: plan["deployment"] for plan in plans}
    problem = ""
    if not workload:
        problem = "tune_workload is not set (5600/140, or a name)"
    elif not load:
        problem = "neither tune_slo nor tune_concurrency is set"
    elif (name or next(iter(deployments), "")) not in deployments or (
        not name and len(deployments) > 1
    ):
        problem = f"it serves {', '.join(deployments)}; tune_deployment is {name or 'not set'}"
    if problem:
        raise error("TRIAL-ASKED", host, problem)
    tuned = name or next(iter(deployments))
    running = {plan["deployment"]["name"]: plan for plan in running_on(evidence)}
    others = tuple(own for own_name, own in deployments.items() if own_name != tuned)
    waiting = tuple(own for own in others if own["name"] not in running)
    names = {own["name"] for own in waiting}
    return Scope(
        deployment=deployments[tuned],
        others=others,
        waiting=waiting,
        running=tuple(plan for own_name, plan in running.items() if own_name != tuned),
        planned=tuple(plan for plan in plans if plan["deployment"]["name"] in names),
    )


def running_on(evidence: Document) -> tuple[Document, ...]:
    """Return the plans that a host has, which are among what was read of it."""
    files: Mapping[str, str] = evidence.get("files") or {}
    return tuple(json.loads(text) for path, text in files.items() if _PLAN.fullmatch(path))
