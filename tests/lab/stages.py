#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the tests that need simulated hosts, some beside one another: most of their time they wait.

    stages.py [NAME …]

Each has a lab of its own. What it prints is in .lab/tests while it runs, and shown when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from labkit.console import REPOSITORY, error, guarded, say, step

# At a time; with two cores a fourth only makes the others slower.
BESIDE = 3


@dataclass(frozen=True)
class Stage:
    """Tests that run in one go: the arguments of Python, and what their environment has besides."""

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def _pytest(name: str, *paths: str, lab: str | None = None) -> Stage:
    where = (("APIARY_DOCS_LAB", lab),) if lab else ()
    return Stage(name, ("-m", "pytest", "--quiet", *(f"tests/{path}" for path in paths)), where)


# In this order: the longest first.
STAGES = (
    Stage("molecule", ("tests/lab/scenarios.py",)),
    _pytest("day-2", "docs/test_day2.py", lab="docs-2"),
    _pytest("day-1", "docs/test_day1.py", lab="docs"),
    _pytest("measured", "docs/test_day1_measured.py", lab="docs-3"),
    _pytest("loss", "router", "loss"),
    _pytest("faults", "faults", "containers", "bundle"),
)


def test(stage: Stage, logs: Path) -> bool:
    """Run a stage, show what it printed, and say whether it passed."""
    say(f"{stage.name}: begun")
    started = time.monotonic()
    log = logs / f"{stage.name}.log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, *stage.argv],
            cwd=REPOSITORY,
            env={**os.environ, **dict(stage.environment)},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    outcome = "failed" if done.returncode else "passed"
    seconds = time.monotonic() - started
    text = log.read_text(encoding="utf-8", errors="replace").rstrip()
    # In one piece, so that two that end together are not mixed.
    print(f"{text}\n{stage.name}: {outcome} in {seconds:.0f} s", flush=True)
    return done.returncode == 0


def run(names: Sequence[str]) -> None:
    """Run these stages, or all."""
    known = {one.name: one for one in STAGES}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise error(
            "LAB-ARGUMENT",
            ", ".join(unknown),
            "no such stage",
            f"give some of {', '.join(known)}, or none for all",
        )
    chosen = [known[name] for name in names] or list(STAGES)
    logs = REPOSITORY / ".lab/tests"
    logs.mkdir(parents=True, exist_ok=True)
    with (
        step(f"Testing on simulated hosts; `tail -f .lab/tests/*.log` follows: {_names(chosen)}"),
        ThreadPoolExecutor(BESIDE) as pool,
    ):
        passed = list(pool.map(lambda stage: test(stage, logs), chosen))
    failed = [one for one, well in zip(chosen, passed, strict=True) if not well]
    if failed:
        raise error(
            "LAB-COMMAND",
            "tests on simulated hosts",
            f"failed: {_names(failed)}",
            "see above; `python tests/lab/stages.py NAME` runs one",
        )


def _names(stages: Sequence[Stage]) -> str:
    return ", ".join(one.name for one in stages)


if __name__ == "__main__":
    sys.exit(guarded(lambda: run(sys.argv[1:])))
