# SPDX-License-Identifier: GPL-3.0-or-later

"""The groups of an inventory that a host belongs to by what its last survey found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..documents import to_document
from ..findings import Finding, error
from ..numbers import age_seconds, time_of
from .names import fold
from .saved import load
from .types import HostFacts, Survey

_FACTS: Mapping[str, Callable[[HostFacts], str | None]] = {
    "gpu": lambda facts: facts.gpu_model,
    "gpus": lambda facts: str(facts.gpus),
    "hive": lambda facts: "_".join(map(str, facts.hives)) or None,
    **{
        name: attrgetter(name)
        for name in ("partitions", "driver", "rocm", "kernel", "os", "bios", "health")
    },
}
# Groups that are named by themselves; the others are KIND_VALUE.
STATES = ("quarantined", "stale", "unreached", "unsurveyed")
PLACES = ("rack", "row", "site", "failure_domain")
KINDS = (*_FACTS, "serves", "settled", *PLACES, *STATES)


def group_name(kind: str, value: str) -> str:
    """Return a group's name as Ansible takes them: driver_6_16_6 of 6.16.6."""
    return re.sub(r"\W+", "_", f"{kind}_{value}".lower()).strip("_")


def groups_of(
    survey: Survey | None, places: Mapping[str, str], states: Iterable[str], kinds: Iterable[str]
) -> Iterator[str]:
    """Yield the groups of one host, of the asked kinds, each once and in their order.

    ``survey`` is its last one, None where there is none; ``places`` is where it stands (PLACES),
    ``states`` which of STATES hold. What a host does not tell puts it into no group.
    """
    states = set(states)
    for kind in kinds:
        if kind in STATES:
            values: tuple[str | None, ...] = ()
            if kind in states:
                yield kind
        elif kind in PLACES:
            values = (places.get(kind),)
        elif survey is None or not survey.reached:
            values = ()
        elif kind == "serves":
            values = tuple(sorted({one.deployment for one in survey.running}))
        elif kind == "settled":
            values = ("yes" if survey.settled else "no",)
        else:
            values = (_FACTS[kind](survey.facts),)
        yield from (group_name(kind, value) for value in values if value)


def variables_of(survey: Survey) -> dict[str, Any]:
    """Return what templates and keyed groups see of a survey, the variable ``apiary_facts``."""
    return {
        **to_document(survey.facts),
        "firmware": [list(pair) for pair in survey.facts.firmware],
        "collected_at": survey.collected_at,
        "reached": survey.reached,
        "settled": survey.settled,
        "serves": sorted({one.deployment for one in survey.running}),
    }


def load_survey(directory: Path) -> Survey | None:
    """Return the last survey of a host; raise FILE-…, DOC-… or INVENTORY-SURVEY with its name."""
    path = directory / "survey.json"
    survey = load(Survey, path)
    if survey is not None and time_of(survey.collected_at) is None:
        message = f"collected_at is no time: {survey.collected_at!r}"
        raise error("INVENTORY-SURVEY", str(path), message)
    return survey


def age_hours(survey: Survey, now: datetime) -> float:
    """Return how old a survey is."""
    return (age_seconds(survey.collected_at, now) or 0) / 3600


def stale(ages: Mapping[str, float], limit: float) -> tuple[Finding, ...]:
    """Return one warning for all hosts whose surveys are older than ``limit`` hours."""
    if not ages:
        return ()
    oldest = max(ages, key=lambda name: ages[name])
    return (
        Finding(
            "INVENTORY-STALE",
            fold(ages),
            f"the last survey is older than {limit:g} hours ({oldest}: {ages[oldest]:.0f} hours), "
            "so groups may be wrong",
        ),
    )


def unread(directory: Path, failure: OSError) -> Finding:
    """Return what is wrong where a host's directory may not be looked into."""
    return Finding(
        "FILE-UNREADABLE",
        str(directory),
        f"cannot be read: {failure.strerror}, so the host counts as never surveyed",
        minor=True,
        origin="who runs Ansible has to be let into it",
    )


def unresolved(host: str, name: str, why: str) -> Finding:
    """Return what is wrong where a variable that makes groups has no value yet."""
    return Finding(
        "INVENTORY-UNRESOLVED",
        host,
        f"{name}: {' '.join(why.split())}; hosts like this one are in no group of it",
        minor=True,
        name=name,
    )


def nobody(file: str) -> Finding:
    """Return what is wrong where no source before this one had a host."""
    return Finding(
        "INVENTORY-NO-HOSTS",
        file,
        "no host is known when this file is read; Ansible reads a directory's files by name",
    )
