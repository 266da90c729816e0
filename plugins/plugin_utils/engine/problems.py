# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with one element of a command, before any rule looks at the whole."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from .flags import SOURCE


@dataclass(frozen=True)
class Check:
    """One built-in check of elements, with the code of its finding; see checks.yml.

    ``forcible`` says whether `force` may name it: the command can be written all the same.
    """

    id: str
    code: str
    reason: str
    source: str
    forcible: bool = False


@dataclass(frozen=True)
class Problem:
    """What one check says of one element, and the ``stage`` at which vLLM itself stops on it.

    Stages: parser, config, backend (the choice of attention backends), load (weights, layers and
    caches), run; None where vLLM goes on.
    """

    check: str
    finding: Finding
    stage: str | None


class ElementError(Exception):
    """An element that cannot be written down at all, with what is wrong."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem.finding))


@functools.cache
def checks() -> tuple[Check, ...]:
    """Return the built-in checks."""
    entries: list[Mapping[str, Any]] = knowledge("vllm/checks.yml")["checks"]
    return tuple(Check(**entry) for entry in entries)


@functools.cache
def check_of(code: str) -> Check:
    """Return the check that a finding's code belongs to."""
    return next(check for check in checks() if check.code == code)


def wrong_element(
    code: str, subject: str, message: str, stage: str | None, **values: Any
) -> Problem:
    """Return a problem with its finding."""
    finding = Finding(code, subject, message, source=SOURCE, **values)
    return Problem(check_of(code).id, finding, stage)
