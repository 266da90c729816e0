# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must be so after each fault, and what a run of them comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chaos.faults import Broken
from chaos.sequence import KINDS, Step
from loss.exchange import KINDS as OUTCOMES
from loss.load import Report
from loss.moment import Moment, unexplained


@dataclass(frozen=True)
class Ended:
    """What came of one step: seconds until all was whole again, None where it never was."""

    step: Step
    report: Report
    recovered: float | None
    problems: tuple[str, ...]


def lost(broken: Broken, report: Report, moment: Moment) -> list[str]:
    """Return which requests failed that should not have."""
    if not broken.replicas and not broken.routers:
        failed = report.failed
        return [f"{len(failed)} failed, and nothing may: {failed[:3]}"] if failed else []
    return unexplained(
        report,
        moment,
        broken.replicas,
        cut=broken.cut,
        noticed=broken.noticed,
        routers=broken.routers,
    )


@dataclass(frozen=True)
class Sums:
    """What some steps come to."""

    steps: tuple[Ended, ...]

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many requests came out how."""
        counts = Counter(outcome.kind for one in self.steps for outcome in one.report.outcomes)
        return {kind: counts[kind] for kind in OUTCOMES}

    @property
    def slowest(self) -> Ended | None:
        """Return the step after which it took longest until all was whole again, if it was."""
        whole = (one for one in self.steps if one.recovered is not None)
        return max(whole, key=lambda one: one.recovered or 0, default=None)

    def row(self, name: str) -> tuple[str, ...]:
        never = any(one.recovered is None for one in self.steps)
        longest = self.slowest.recovered if self.slowest else 0
        return (
            name,
            str(len(self.steps)),
            str(sum(self.outcomes.values())),
            *map(str, self.outcomes.values()),
            "never" if never else f"{longest:.0f} s",
            str(sum(len(one.problems) for one in self.steps)),
        )


@dataclass
class Tally:
    """All steps of a run so far."""

    seed: int
    ended: list[Ended] = field(default_factory=list)

    @property
    def problems(self) -> list[tuple[Step, str]]:
        return [(one.step, problem) for one in self.ended for problem in one.problems]

    @property
    def replay(self) -> str:
        """Return how to see it again, as far as it came."""
        return f"make chaos SEED={self.seed} STEPS={len(self.ended)}"

    def by_kind(self) -> dict[str, Sums]:
        kinds = sorted({one.step.kind for one in self.ended})
        return {
            kind: Sums(tuple(one for one in self.ended if one.step.kind == kind)) for kind in kinds
        }

    def document(self) -> dict[str, Any]:
        """Return the run as --json has it."""
        everything, by_kind = Sums(tuple(self.ended)), self.by_kind()
        losses = {
            kind: {how: count for how, count in sums.outcomes.items() if count and how != "ok"}
            for kind, sums in by_kind.items()
        }
        slowest = everything.slowest
        return {
            "seed": self.seed,
            "steps": len(self.ended),
            "faults": {kind: len(sums.steps) for kind, sums in by_kind.items()},
            "families": dict(Counter(KINDS[one.step.kind].family for one in self.ended)),
            "requests": sum(everything.outcomes.values()),
            "outcomes": everything.outcomes,
            "losses": {kind: counts for kind, counts in losses.items() if counts},
            "longest_recovery": None
            if slowest is None
            else {"seconds": round(slowest.recovered or 0, 1), "step": str(slowest.step)},
            "problems": [{"step": str(step), "problem": what} for step, what in self.problems],
            "replay": self.replay,
        }

    def table(self) -> str:
        """Return the run for a person: a line for each kind of fault, then the sums."""
        rows = [("fault", "times", "requests", *OUTCOMES, "longest recovery", "problems")]
        rows += [sums.row(kind) for kind, sums in self.by_kind().items()]
        rows.append(Sums(tuple(self.ended)).row("all"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"step {step}: {problem}" for step, problem in self.problems]
        return "\n".join([*lines, f"seed {self.seed}; again: {self.replay}"])
