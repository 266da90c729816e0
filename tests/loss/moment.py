# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a failure may take along: what was in flight on it, and what came before it was noticed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loss.exchange import Outcome
from loss.load import Report, Running

# How long a router may take to notice: until then it sends requests to what is dead.
NOTICED = 1.0


@dataclass
class Moment:
    """When something died: it takes a moment to kill, so this is a span of the load's time."""

    began: float
    ended: float

    def took(self, one: Outcome, noticed: float) -> bool:
        """Say whether a request was under way on what died, or sent there before it was noticed."""
        return one.ended >= self.began and one.started <= self.ended + noticed


@contextmanager
def at(running: Running) -> Iterator[Moment]:
    """The moment in which the block breaks something."""
    moment = Moment(running.now(), float("inf"))
    yield moment
    moment.ended = running.now()


def unexplained(
    report: Report,
    moment: Moment,
    names: Collection[str],
    *,
    cut: bool = False,
    noticed: float = NOTICED,
    routers: Collection[str] = (),
) -> list[str]:
    """Return how failures go beyond what replicas or routers that broke may take along.

    With ``cut`` an answer may break off, because nobody is left to end it well. What went over a
    router that broke itself may end anyhow.
    """
    failed = [one for one in report.failed if one.router not in routers]
    late = [one for one in report.failed if not moment.took(one, noticed)]
    elsewhere = [one for one in failed if one.replica and one.replica not in names]
    kinds = {"error", "refused", "cut"} if cut else {"error", "refused"}
    silent = [one for one in failed if one.kind not in kinds]
    problems = (("not in flight", late), ("elsewhere", elsewhere), ("without an error", silent))
    return [
        f"{len(found)} of {len(report.failed)} failed {what}: {found[:3]}"
        for what, found in problems
        if found
    ]
