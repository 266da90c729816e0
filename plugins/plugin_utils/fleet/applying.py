# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a survey decided to what is applied of it in the same run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..findings import Finding, errors_of
from ..host.types import CONCERNS
from .deciding import Decided
from .survey import resources_of
from .types import ConcernSurvey, Survey

# Their roles do more than converge their resources: lists are updated, a cluster is changed.
ROLES_WITH_ACTS = ("container_runtime", "device_plugin")


@dataclass(frozen=True)
class Pending:
    """What a survey leaves for the rest of its run: everything by concern, as in the survey.

    ``resources`` are as converge takes them, ``reports`` what it returned in check mode.
    ``refused`` is why a concern can't be decided, ``saved`` the documents of what is served, by
    path. ``acts`` are the roles that do more than converge; ``whole`` says that the survey has all
    of the host's concerns.
    """

    survey: Survey
    whole: bool
    resources: Mapping[str, tuple[Any, ...]]
    reports: Mapping[str, tuple[Any, ...]]
    refused: Mapping[str, tuple[Finding, ...]]
    acts: tuple[str, ...] = ()
    saved: Mapping[str, str] | None = None


def role_of(concern: str) -> str:
    """Return the role of a concern: `replicas` of `replicas:NAME`."""
    return concern.partition(":")[0]


def pending_of(
    survey: Survey,
    decided: Decided,
    reports: Sequence[Mapping[str, Any]],
    whole: bool,
    before: Pending | None,
) -> Pending:
    """Return what a survey leaves; what it did not inspect is as ``before`` it in this run."""
    names = [concern.concern for concern in survey.concerns]
    resources = resources_of(decided.concerns)
    pending = Pending(
        survey,
        whole,
        {name: tuple(item for item in resources if item["role"] == name) for name in names},
        {name: tuple(item for item in reports if item["role"] == name) for name in names},
        {item.name: errors_of((*item.findings, *item.missing)) for item in decided.concerns},
        acts=tuple(
            role_of(item.name)
            for item in decided.concerns
            if item.name in ROLES_WITH_ACTS or (item.unsure and ":" not in item.name)
        ),
        saved=decided.serving.documents() if decided.serving and decided.wanted else None,
    )
    if before is None or whole:
        return pending
    roles = set(map(role_of, names))
    earlier = [item for item in before.survey.concerns if role_of(item.concern) not in roles]
    merged = replace(survey, concerns=(*earlier, *survey.concerns))
    return replace(pending, survey=merged, whole=before.whole)


def refusals(pending: Pending, roles: Collection[str], checking: bool) -> tuple[Finding, ...]:
    """Return why roles can't be applied; what the host refused may be mended by a role before."""
    return tuple(
        finding
        for concern in _of(pending, roles)
        for finding in (
            errors_of(concern.findings) if checking else pending.refused.get(concern.concern, ())
        )
    )


def concerns_of(pending: Pending, roles: Sequence[str]) -> list[str]:
    """Return the concerns of roles that have resources, in the order in which they are applied.

    It is the one in which a host is made right, whatever order roles are given in.
    """
    return [item.concern for item in _of(pending, roles) if pending.resources.get(item.concern)]


def applied(pending: Pending, roles: Sequence[str]) -> Pending:
    """Return what is pending once roles are applied: their concerns are settled."""
    survey = pending.survey
    done = {item.concern for item in _of(pending, roles)}
    concerns = tuple(_settled(item) if item.concern in done else item for item in survey.concerns)
    survey = replace(survey, concerns=concerns)
    if "replicas" in roles:
        requested = {item.deployment: replace(item, up=item.replicas) for item in survey.wanted}
        gone = {name.partition(":")[2] for name in done} - requested.keys()
        others = {item.deployment: item for item in survey.running if item.deployment not in gone}
        served = {**others, **requested}
        survey = replace(survey, running=tuple(served[name] for name in sorted(served)))
    return replace(pending, survey=survey)


def _of(pending: Pending, roles: Collection[str]) -> list[ConcernSurvey]:
    order = [role for role in (*CONCERNS, "replicas") if role in roles]
    return [
        item for role in order for item in pending.survey.concerns if role_of(item.concern) == role
    ]


def _settled(concern: ConcernSurvey) -> ConcernSurvey:
    warnings = tuple(item for item in concern.findings if item.severity != "error")
    return replace(concern, settled=True, changes=(), reboot=(), findings=warnings)
