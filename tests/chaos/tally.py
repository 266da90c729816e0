# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must be so after each fault, and what a run of them comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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


def counted(steps: Iterable[Ended]) -> Counter[str]:
    """Return how many requests of steps came out how."""
    return Counter(outcome.kind for one in steps for outcome in one.report.outcomes)


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

    def document(self) -> dict[str, Any]:
        """Return the run as --json has it."""
        losses: dict[str, Counter[str]] = {}
        for one in self.ended:
            counts = Counter(outcome.kind for outcome in one.report.failed)
            losses.setdefault(one.step.kind, Counter()).update(counts)
        recovered = [one for one in self.ended if one.recovered is not None]
        longest = max(recovered, key=lambda one: one.recovered or 0, default=None)
        outcomes = counted(self.ended)
        return {
            "seed": self.seed,
            "steps": len(self.ended),
            "faults": dict(sorted(Counter(one.step.kind for one in self.ended).items())),
            "families": dict(Counter(KINDS[one.step.kind].family for one in self.ended)),
            "requests": sum(outcomes.values()),
            "outcomes": {kind: outcomes[kind] for kind in OUTCOMES},
            "losses": {kind: dict(counts) for kind, counts in sorted(losses.items()) if counts},
            "longest_recovery": None
            if longest is None
            else {"seconds": round(longest.recovered or 0, 1), "step": str(longest.step)},
            "problems": [{"step": str(step), "problem": what} for step, what in self.problems],
            "replay": self.replay,
        }

    def table(self) -> str:
        """Return the run for a person: a line for each kind of fault, then the sums."""
        head = ("fault", "times", "requests", *OUTCOMES, "longest recovery", "problems")
        rows = [head]
        for kind in sorted({one.step.kind for one in self.ended}):
            rows.append(self._row(kind, [one for one in self.ended if one.step.kind == kind]))
        rows.append(self._row("all", self.ended))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"step {step}: {problem}" for step, problem in self.problems]
        return "\n".join([*lines, f"seed {self.seed}; again: {self.replay}"])

    def _row(self, name: str, chosen: list[Ended]) -> tuple[str, ...]:
        outcomes = counted(chosen)
        longest = max((one.recovered or 0 for one in chosen), default=0)
        never = any(one.recovered is None for one in chosen)
        return (
            name,
            str(len(chosen)),
            str(sum(outcomes.values())),
            *(str(outcomes[kind]) for kind in OUTCOMES),
            "never" if never else f"{longest:.0f} s",
            str(sum(len(one.problems) for one in chosen)),
        )
