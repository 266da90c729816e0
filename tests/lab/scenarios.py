#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run Molecule scenarios on two simulated hosts: each takes the next when it is free.

    scenarios.py [ci | night | NAME …]

`ci` has the scenarios of roles that nothing else in CI converges; `night` the others. Without a
name all are run, as by `molecule test --all` on one host, in about half the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from labkit.console import REPOSITORY, error, guarded, say, step

SCENARIOS = REPOSITORY / "extensions/molecule"
# In this order: the longest first, so that both hosts end at about the same time, and what makes a
# bare host wrong before `site`, which leaves one that is right, and `monitoring`, which leaves
# other hardware.
FIRST = (
    "replicas",
    "rollout",
    "host_tuning",
    "rocm",
    "reboot",
    "weight_cache",
    "device_plugin",
)
FIRST += ("container_runtime", "site", "monitoring")
# tests/loss rolls out behind two routers, tests/tune tunes, tests/faults installs ROCm by apt, the
# tutorial converges the whole site twice; the rest are other settings of a role, as `_custom` is,
# and `monitoring`, whose programs tests/telemetry runs: with Grafana it is as long as three others.
# The tutorial's site.yml and verify.yml have the roles weight_cache and acceptance on each host.
NIGHT = ("rollout", "tune", "site", "replicas", "rocm", "replicas_quadlet", "router", "monitoring")
NIGHT += ("weight_cache", "acceptance")
LABS = ("molecule", "molecule-2")


def select(words: Sequence[str]) -> list[str]:
    """Return the scenarios that words of the command line name: all without any.

    The one that makes and removes hosts is left out.
    """
    names = sorted(path.parent.name for path in SCENARIOS.glob("*/molecule.yml"))
    names.remove("default")
    night = {name for name in names if name in NIGHT or name.endswith("_custom")}
    sets = {"ci": set(names) - night, "night": night}
    wanted = set().union(*(sets.get(word, {word}) for word in words)) if words else set(names)
    if unknown := sorted(wanted - set(names)):
        raise error(
            "LAB-ARGUMENT",
            ", ".join(unknown),
            f"no such scenario; give ci, night, or some of {', '.join(names)}",
        )
    return [name for name in names if name in wanted]


def families(names: Sequence[str]) -> list[list[str]]:
    """Return the scenarios in the order in which they begin; a role's share their host."""
    found: dict[str, list[str]] = {}
    for name in names:
        base = next((one for one in names if name.startswith(f"{one}_")), name)
        found.setdefault(base, []).append(name)
    first = [name for name in FIRST if name in found]
    return [found[name] for name in (*first, *(name for name in found if name not in first))]


def test(lab: str, name: str, scratch: Path) -> tuple[int, float, str]:
    """Run one scenario on a lab's hosts, which stay; return status, seconds and output."""
    environment = {
        **os.environ,
        "APIARY_MOLECULE_LAB": lab,
        "MOLECULE_EPHEMERAL_DIRECTORY": str(scratch / name),
    }
    started = time.monotonic()
    done = subprocess.run(
        ["molecule", "test", "--destroy", "never", "--scenario-name", name],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, time.monotonic() - started, done.stdout


def work(lab: str, waiting: deque[list[str]], scratch: Path) -> list[str]:
    """Run scenarios until none is left; show the whole output of one that fails."""
    failed = []
    while waiting:
        try:
            family = waiting.popleft()
        except IndexError:  # the other host took it
            break
        for name in family:
            code, seconds, text = test(lab, name, scratch)
            if code:
                failed.append(name)
                sys.stdout.write(text)
                sys.stdout.flush()
            say(f"Molecule: {name}: {'failed' if code else 'passed'} in {seconds:.0f} s")
    return failed


def run(words: Sequence[str]) -> None:
    """Run the scenarios that are named on two hosts."""
    waiting = deque(families(select(words)))
    for lab in LABS:
        command = [sys.executable, "tests/lab/demo.py", "hosts", "--name", lab, "--routers", "2"]
        subprocess.run(command, cwd=REPOSITORY, check=True)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="apiary-molecule-") as scratch,
        step("Running Molecule on two hosts"),
        ThreadPoolExecutor(len(LABS)) as pool,
    ):
        workers = [pool.submit(work, lab, waiting, Path(scratch)) for lab in LABS]
        failed = [name for worker in workers for name in worker.result()]
    say(f"Molecule: {time.monotonic() - started:.0f} s")
    for lab in LABS:
        command = [sys.executable, "tests/lab/lab.py", "down", "--name", lab]
        subprocess.run(command, cwd=REPOSITORY, check=True)
    if failed:
        raise error(
            "LAB-COMMAND",
            "molecule",
            f"failed: {', '.join(failed)}",
        )


if __name__ == "__main__":
    sys.exit(guarded(lambda: run(sys.argv[1:])))
