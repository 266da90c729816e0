# SPDX-License-Identifier: GPL-3.0-or-later

"""A tuning from its question to its choice: `apiary.tune/v2`, written after every change.

Scores are requests a second of one host: under an SLO the rate at the highest level that keeps it,
without one the rate at a fixed concurrency. Unknown is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..bench.types import Cost, Interval, Workload
from ..deployment import Deployment
from ..findings import Finding
from ..model.types import Architecture
from ..plan.types import Plan
from ..slo import Limit
from ..topology.types import Topology

# alike: one candidate on every host; short and longer: successive halving; final: with restarts;
# confirm: the chosen and the current one once more.
Kind = Literal["alike", "short", "longer", "final", "confirm"]
# failed: the engine's fault. lost (a host) and invalid (the load generator): not the candidate's.
State = Literal["measured", "failed", "lost", "invalid"]
Verdict = Literal["better", "no difference found", "current is best", "nothing measured"]


@dataclass(frozen=True)
class Budget:
    """Where exploring ends: layouts that are looked at, trials, and seconds that trials took.

    ``engine_runs`` are those of each finalist, ``confirm_engine_runs`` those of the repeat, 0 for
    none; one of anything has no spread, so it compares nothing. ``repeats`` are measurements of a
    level in one engine run, None for those of knowledge/tune.yml: restarts differ by more.
    Finals and repeat are measured whatever was spent before.
    """

    layouts: int = 6
    trials: int | None = 40
    seconds: int | None = None
    engine_runs: int = 3
    confirm_engine_runs: int = 3
    repeats: int | None = None


@dataclass(frozen=True)
class Question:
    """What is asked; two equal questions with equal outcomes have equal answers.

    ``layouts`` are names such as DP2/TP4/EP4: None for all that are possible, () for the current
    one alone. ``knobs`` are values by path of the deployment, in the order of knobs.wanted; None
    for those of knowledge/tune.yml. ``concurrency`` is the host's, and counts without an SLO.
    ``measured_by`` is what sends the load: numbers of another client are of another question.
    """

    deployment: Deployment
    workload: Workload
    slo: tuple[Limit, ...] = ()
    concurrency: int = 64
    search_by: Literal["concurrency", "request_rate"] = "concurrency"
    layouts: tuple[str, ...] | None = None
    knobs: dict[str, tuple[Any, ...]] | None = None
    budget: Budget = Budget()
    seed: int = 1
    hosts: tuple[str, ...] = ()
    measured_by: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fact:
    """One exact figure of a candidate, by which the queue is ordered or a person may evaluate."""

    name: str
    figure: float
    unit: str
    source: str


@dataclass(frozen=True)
class Candidate:
    """One configuration: the deployment with ``changes``, values by path, None to leave it out.

    ``stage`` is what it was made for: current, layouts, or the path of a knob.
    """

    id: str
    label: str
    stage: str
    layout: str
    changes: dict[str, Any] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class NotTried:
    """What was not measured, and why; ``codes`` are the findings that forbid it."""

    label: str
    reason: str
    changes: dict[str, Any] = field(default_factory=dict)
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a trial ended. ``score`` is of the repeats in this one engine run.

    ``most`` is what the score could be at best: the rate at the lowest level that broke the SLO.
    ``within`` is how many requests at once kept it, of one host.
    ``path`` is the Bench document's, relative to this one; ``cause`` is from the journal.
    """

    status: State
    score: Interval | None = None
    most: float | None = None
    summary: str = ""
    cause: str | None = None
    path: str | None = None
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    within: float | None = None


@dataclass(frozen=True)
class Trial:
    """One engine run with one candidate on one host, and one benchmark of it."""

    id: str
    kind: Kind
    candidate: str
    host: str
    engine_run: int = 0
    attempt: int = 0
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Dropped:
    """A candidate that a round ended for, and why."""

    candidate: str
    reason: str


@dataclass(frozen=True)
class Round:
    """Candidates measured alike, each in ``engine_runs`` engine runs.

    ``stage`` is hosts, layouts, the path of a knob, or choice. ``leader`` is the best so far when
    the round ended; ``ended`` says that it did. Finals and repeat count on one ``host`` alone.
    """

    stage: str
    kind: Kind
    candidates: tuple[str, ...]
    engine_runs: int
    retained: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    leader: str | None = None
    host: str | None = None
    ended: bool = False


@dataclass(frozen=True)
class Host:
    """A host that was offered; one that is not alike is left out, with the reason."""

    name: str
    used: bool = True
    reason: str = ""
    control: Interval | None = None


@dataclass(frozen=True)
class Compared:
    """One configuration against another over the engine runs of one round; above 1 it is faster.

    ``detectable`` is the least relative difference that these runs would most likely have shown.
    """

    candidate: str
    against: str
    verdict: Literal["better", "worse", "no difference found"]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    detectable: float | None = None


@dataclass(frozen=True)
class Choice:
    """What holds from now on: ``candidate``, with its score and that of the ``current`` one.

    ``confirmed`` says whether a repeat came to the same verdict; None: there was none. The gain
    to be told is that of the repeat, since the first was chosen for being high.
    """

    candidate: str | None
    verdict: Verdict
    reason: str
    score: Interval | None = None
    current: Interval | None = None
    comparisons: tuple[Compared, ...] = ()
    repeat: Compared | None = None
    confirmed: bool | None = None


@dataclass(frozen=True)
class Tune:
    """A whole tuning; everything that the next step needs is in it.

    ``candidates`` are in the order they were queued in, the current configuration first where it
    is possible. ``topology`` is the first host's, ``others`` are plans that stay on the hosts.
    ``costs`` are what finals and repeat took, by candidate.
    """

    SCHEMA: ClassVar[str] = "apiary.tune/v2"

    requested: Question
    architecture: Architecture
    topology: Topology
    candidates: tuple[Candidate, ...]
    hosts: tuple[Host, ...]
    others: tuple[Plan, ...] = ()
    rounds: tuple[Round, ...] = ()
    trials: tuple[Trial, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    choice: Choice | None = None
    findings: tuple[Finding, ...] = ()
    costs: dict[str, Cost] = field(default_factory=dict)

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of an id."""
        return next(one for one in self.candidates if one.id == name)

    @property
    def current(self) -> Candidate | None:
        """Return the configuration as deployed, None where it is not possible here."""
        return next((one for one in self.candidates if one.stage == "current"), None)
