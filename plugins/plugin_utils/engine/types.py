# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's command, every element with its reason and source."""

from __future__ import annotations

from dataclasses import dataclass

from ..findings import Finding


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
