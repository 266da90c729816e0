#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a suite of tests stage by stage, go on after a stage that fails, and end with one table.

    stages.py SUITE | STAGE …

Stages of a phase run beside one another, three at a time: those on simulated hosts mostly wait.
What they print is in .lab/tests while they run, and shown when they end; one that is alone in its
phase prints at once. The exit status is 1 if any stage failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LOGS = REPOSITORY / ".lab/tests"
# At a time; with two cores a fourth only makes the others slower.
BESIDE = 3


@dataclass(frozen=True)
class Stage:
    """Tests that run in one go: their command, and what their environment has besides."""

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Result:
    """How a stage ended."""

    name: str
    passed: bool
    seconds: float


def _pytest(name: str, *paths: str, lab: str | None = None) -> Stage:
    environment = (("APIARY_DOCS_LAB", lab),) if lab else ()
    files = (path if path.startswith("-") else f"tests/{path}" for path in paths)
    return Stage(
        name, (sys.executable, "-m", "pytest", "--quiet", "--durations=12", *files), environment
    )


def _make(target: str) -> Stage:
    return Stage(target, ("make", "--no-print-directory", target))


STAGES = {
    stage.name: stage
    for stage in (
        *map(_make, ("lint", "lint-scenarios", "sanity", "unit", "browser", "telemetry")),
        *map(_make, ("chaos", "fleet", "e2e", "test-vm", "test-engine", "stranger", "routers")),
        _make("test-quality"),
        _make("stranger-fleet"),
        Stage(
            "engine-turns",
            ("make", "--no-print-directory", "test-engine", "ENGINE=--small --optional --turns 2"),
        ),
        Stage("molecule", (sys.executable, "tests/lab/scenarios.py", "ci")),
        Stage("molecule-night", (sys.executable, "tests/lab/scenarios.py", "night")),
        _pytest("bench", "bench", "-n=auto"),
        _pytest("tutorial", "docs/test_day1.py"),
        _pytest("loss", "router", "loss"),
        _pytest("faults", "faults", "containers", "bundle"),
        _pytest("pages", "docs/test_alone.py", "--all-pages"),
        _pytest("day-1", "docs/test_day1.py", "--all-pages", lab="docs"),
        _pytest("day-2", "docs/test_day2.py", lab="docs-2"),
        _pytest("measured", "docs/test_day1_measured.py", lab="docs-3"),
        _pytest("killed", "faults", "-m=night"),
        _pytest("chaos-seeds", "chaos", "-m=night"),
        _pytest("router-seeds", "router", "loss", "-m=night"),
        _pytest("doubles", "doubles", "-n=auto"),
        # With more examples than CI's, wherever they are, and what is of the night beside them.
        _pytest(
            "property",
            "property",
            "unit",
            "-m=hypothesis or night",
            "--hypothesis-profile=night",
            "-n=auto",
        ),
        _pytest("packaging", "packaging", "-m=night"),
    )
}
# Phases in order; what keeps the cores busiest, loss and faults, is not beside one another.
LAB = ("molecule", "loss", "tutorial", "faults")
DOCS = ("day-2", "day-1", "measured", "pages")
SUITES: dict[str, tuple[tuple[str, ...], ...]] = {
    # What has one process alone is beside what has more, so that no core waits for it.
    "check": (
        ("unit", "lint"),
        ("bench", "engine-turns"),
        (*LAB, "sanity", "browser", "telemetry"),
    ),
    "test": (("unit",), ("bench",), (*LAB, "browser", "telemetry")),
    "lab": (LAB,),
    "docs-test": (DOCS,),
    "night": (
        ("doubles", "lint-scenarios"),
        ("property",),
        (*DOCS, "molecule-night", "packaging"),
        ("killed",),
        ("chaos",),
        ("chaos-seeds",),
        ("router-seeds",),
        *((name,) for name in ("fleet", "e2e", "test-vm", "test-engine")),
        ("stranger",),
        ("stranger-fleet",),
        ("routers",),
        ("test-quality",),
    ),
}


def phases(names: Sequence[str]) -> list[list[Stage]]:
    """Return the stages of a suite, or those that are named, in phases."""
    if len(names) == 1 and names[0] in SUITES:
        return [[STAGES[name] for name in phase] for phase in SUITES[names[0]]]
    unknown = sorted(set(names) - set(STAGES))
    if unknown or not names:
        raise ValueError(
            f"no such stage: {', '.join(unknown) or '(none)'}; suites: {', '.join(SUITES)};"
            f" stages: {', '.join(STAGES)}"
        )
    return [[STAGES[name] for name in dict.fromkeys(names)]]


def start(stage: Stage, log: Path | None) -> int:
    """Run a stage's command; print its output, or write it to a log. Return its exit status."""
    # A make below this one must not share its jobs.
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    environment = {**inherited, **dict(stage.environment)}
    sys.stdout.flush()
    if log is None:
        command = subprocess.run(
            stage.argv, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, check=False
        )
        return command.returncode
    with log.open("wb") as stream:
        return subprocess.run(
            stage.argv,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def run(
    chosen: Sequence[Sequence[Stage]],
    logs: Path,
    start: Callable[[Stage, Path | None], int] = start,
    clock: Callable[[], float] = time.monotonic,
) -> list[Result]:
    """Run the stages of each phase beside one another, whatever fails; return how each ended."""

    def test(stage: Stage, log: Path | None) -> Result:
        _say(f"{stage.name}: started" + (f", output in {log}" if log else ""))
        started = clock()
        try:
            status: int | str = start(stage, log)
        except OSError as problem:
            status = f"cannot be run: {problem}"
        result = Result(stage.name, status == 0, clock() - started)
        text = log.read_text(encoding="utf-8", errors="replace") if log and log.exists() else ""
        why = "" if result.passed else f" ({status})"
        # In one piece, so that two that end together are not mixed.
        _say(f"{text}{stage.name}: {_outcome(result)}{why} in {result.seconds:.0f} s")
        return result

    results = []
    logs.mkdir(parents=True, exist_ok=True)
    for phase in chosen:
        with ThreadPoolExecutor(BESIDE) as pool:
            places = [None if len(phase) == 1 else logs / f"{stage.name}.log" for stage in phase]
            results += pool.map(test, phase, places)
    return results


def table(results: Sequence[Result], seconds: float) -> str:
    """Return the closing table: stage, result, time."""
    rows = [(one.name, _outcome(one), _minutes(one.seconds)) for one in results]
    failed = sum(not one.passed for one in results)
    rows.append(("all", f"{failed} failed" if failed else "passed", _minutes(seconds)))
    width = max(len(row[0]) for row in (("stage",), *rows))
    return "\n".join(
        f"{name:{width}}  {result:8}  {time:>6}"
        for name, result, time in (("stage", "result", "time"), *rows)
    )


def _outcome(result: Result) -> str:
    return "passed" if result.passed else "failed"


def _minutes(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def _say(text: str) -> None:
    print(text, flush=True)


def main(names: Sequence[str]) -> int:
    """Run what is named; return the exit status."""
    try:
        chosen = phases(names)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    started = time.monotonic()
    results = run(chosen, LOGS)
    _say("\n" + table(results, time.monotonic() - started))
    return 0 if all(one.passed for one in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
