# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's command, every element with its reason and source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import Finding
from .conditions import Fact, fill


@dataclass(frozen=True)
class Reason:
    """Why one element (a flag, or an environment variable) is in the recipe."""

    element: str
    rule: str
    reason: str
    source: str


@dataclass(frozen=True)
class Recipe:
    """``env`` and ``argv`` of one engine (without the executable's own path) and the reasons.

    ``attention_backend`` is the one that vLLM is expected to choose, None where that is not
    known, and ``attention_reason`` why. ``rules_of`` is the known version whose facts hold:
    another one than ``version`` where that is not known.
    """

    engine: str
    version: str
    env: dict[str, str]
    argv: tuple[str, ...]
    reasons: tuple[Reason, ...]
    findings: tuple[Finding, ...] = ()
    attention_backend: str | None = None
    attention_reason: Reason | None = None
    rules_of: str = ""


@dataclass(frozen=True)
class Refused:
    """One refusal: the ``rule`` or check that says so, and the ``stage`` at which vLLM stops.

    Stages: parser, config, backend (the choice of attention backends), load (weights, layers,
    caches), run; None where vLLM goes on, and what it does would be ignored or against the plan.
    """

    rule: str
    finding: Finding
    stage: str | None


@dataclass(frozen=True)
class Assessment:
    """A recipe as if every refusal had been forced, and the refusals."""

    recipe: Recipe
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class Owner:
    """Why a flag or variable is the plan's; the members are explained in owned.yml."""

    reason: str
    field: str | None = None
    value: str | None = None
    allowed: str | None = None
    dropped: str | None = None

    def agrees(self, text: str | None, facts: Mapping[str, Fact]) -> bool:
        """Say whether an override of this text, or one that drops it (None), does no harm."""
        if text is None:
            if self.dropped is None:
                return True
            text = self.dropped
        if self.allowed is not None and re.fullmatch(self.allowed, text):
            return True
        return self.value is not None and text == fill(self.value, facts)


def of_flag(dest: str) -> Owner | None:
    """Return the owner of a flag, or None where it is the operator's to set."""
    entry = knowledge("vllm/owned.yml")["flags"].get(dest)
    return None if entry is None else Owner(**entry)


def of_env(name: str) -> Owner | None:
    """Return the owner of a variable, or None where it is the operator's to set."""
    owned = knowledge("vllm/owned.yml")
    entry = owned["env"].get(name)
    if entry is not None:
        return Owner(**entry)
    for prefix, group in owned["prefixes"].items():
        if name.startswith(prefix) and not name.startswith(tuple(group["except"])):
            return Owner(group["reason"])
    return None
