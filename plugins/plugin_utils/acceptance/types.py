# SPDX-License-Identifier: GPL-3.0-or-later

"""What is requested of one host, measured and found: `apiary.acceptance/v1`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..findings import Finding, by_severity
from ..host.types import Check, CheckState

_COUNTED: tuple[tuple[CheckState, str], ...] = (
    ("pass", "pass"),
    ("fail", "fail"),
    ("skip", "do not apply"),
    ("unknown", "unknown"),
)


Test = Literal["rccl", "transferbench", "rvs"]
TESTS: tuple[Test, ...] = ("rccl", "transferbench", "rvs")
CODES = {"rccl": "ACCEPT-RCCL", "transferbench": "ACCEPT-TRANSFERBENCH", "rvs": "ACCEPT-RVS"}


@dataclass(frozen=True)
class Excerpt:
    """Raw evidence that a failed check rests on: ``origin`` is a file or command of the host."""

    code: str
    subject: str
    origin: str
    text: str


@dataclass(frozen=True)
class Acceptance:
    """Every check of one host, and what its topology and its concerns' decisions complain of.

    ``accepted`` is False where a check of severity error fails, or a complaint is an error.
    ``excerpts`` are cut to what a person reads; the whole is on the host. ``gpus`` are the unique
    ids of its GPUs.
    """

    SCHEMA: ClassVar[str] = "apiary.acceptance/v1"

    host: str
    collected_at: str
    accepted: bool
    checks: tuple[Check, ...]
    complaints: tuple[Finding, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return what a person should know: errors first, last what could not be read."""
        found = [finding for check in self.checks if (finding := check.finding())]
        found += self.complaints
        return tuple(sorted(found, key=by_severity))

    def summary(self) -> tuple[str, ...]:
        """Return lines for a person: the count, what programs measured, all that is wrong."""
        counts = Counter(check.state for check in self.checks)
        told = ", ".join(f"{counts[state]} {name}" for state, name in _COUNTED if counts[state])
        verdict = "accepted" if self.accepted else "not accepted"
        lines = [f"{self.host}: {verdict}: {len(self.checks)} checks: {told}"]
        ran = [one for one in self.checks if one.code in CODES.values()]
        if missing := [one.subject.partition(": ")[2] for one in ran if one.state == "skip"]:
            lines.append(f"not installed: {', '.join(missing)} (rocm_burn_in: what AMD packages)")
        for one in ran:
            if one.state != "skip":
                lines.append(f"{one.state}: {one.subject}: {one.found} ({one.expected})")
        return (*lines, *(line for one in self.findings for line in str(one).splitlines()))


@dataclass(frozen=True)
class Settings:
    """``gpus`` and ``memory_gib`` are what the host is to have; None: what AMD's guides say.

    ``versions`` are patterns by driver, rocm, kernel, bios. ``tests_seconds`` ends each program,
    ``burn_in_seconds`` all those of a burn-in together. ``served``: it did, until it was stopped.
    ``nfs_minimum`` is in MB/s, None for the bound in knowledge/acceptance/nfs.yml.
    """

    gpus: int | None = None
    strict: bool = False
    memory_gib: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    tests: tuple[Test, ...] = ()
    tests_seconds: int = 900
    burn_in: Literal["never", "new", "always"] = "never"
    burn_in_seconds: int = 3600
    served: bool = False
    nfs_throughput: bool = False
    nfs_minimum: float | None = None
    nfs_while_serving: bool = False


@dataclass(frozen=True)
class Health:
    """A replica's own answer: the HTTP status of its /health, or why there was none."""

    unit: str
    status: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Requested:
    """What a host is to be measured for, as acceptance_probe takes it, and what is refused.

    ``health`` are replicas by unit, port and address; ``reading`` is a bounded read of files beside
    the page cache. ``runs`` are programs to run by the first possible of their ``attempts``, each
    an argv and what file it ``needs``; ``test`` is of TESTS, ``name`` its part. ``idle_bytes`` is
    how much VRAM a process may hold beside a run that needs the GPUs idle. A run ends after
    ``run_seconds``, all of them after ``seconds`` where there is such a bound.
    """

    health: tuple[dict[str, Any], ...] = ()
    reading: dict[str, Any] | None = None
    runs: tuple[dict[str, Any], ...] = ()
    run_seconds: int = 900
    seconds: int | None = None
    idle_bytes: int = 0
    refused: tuple[Finding, ...] = ()

    @property
    def nothing(self) -> bool:
        """Return whether there is nothing to measure."""
        return not (self.health or self.reading or self.runs)


@dataclass(frozen=True)
class Ran:
    """One run as it went: ``argv`` is empty where nothing was there to start (``error`` says so).

    ``exit`` is None where it did not end by itself. Output is what the program printed, cut in
    the middle where it is long. ``clocks`` are each GPU's fastest compute clock (MHz) meanwhile.
    """

    test: Test
    name: str
    argv: tuple[str, ...] = ()
    exit: int | None = None
    output: str = ""
    seconds: float = 0.0
    error: str | None = None
    installed: bool = True
    clocks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HasRead:
    """What reading gave: ``direct`` says whether it went past the page cache."""

    bytes: int
    seconds: float
    files: int
    direct: bool = True
    error: str | None = None


@dataclass(frozen=True)
class Measured:
    """What a host answered."""

    health: tuple[Health, ...] = ()
    read: HasRead | None = None
    runs: tuple[Ran, ...] = ()
