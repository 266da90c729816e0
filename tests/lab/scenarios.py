#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run all Molecule scenarios, in two halves that each have a simulated host of their own.

`molecule test --all` does the same on one host, in about twice the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit.console import REPOSITORY, error, guarded, say, step

SCENARIOS = REPOSITORY / "extensions/molecule"
# What serves, and changes the driver below, shares a host.
SERVING = ("replicas", "rocm", "rollout", "site")
LABS = ("molecule", "molecule-2")


def halves() -> tuple[list[str], list[str]]:
    """Return the scenarios' names in order, but for the one that makes and removes hosts."""
    names = sorted(path.parent.name for path in SCENARIOS.glob("*/molecule.yml"))
    names.remove("default")
    serving = [name for name in names if name.startswith(SERVING)]
    return [name for name in names if name not in serving], serving


def start(lab: str, names: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start Molecule on some scenarios."""
    chosen = [part for name in names for part in ("--scenario-name", name)]
    environment = {
        **os.environ,
        "APIARY_MOLECULE_LAB": lab,
        "MOLECULE_EPHEMERAL_DIRECTORY": str(log.with_suffix("")),
    }
    with log.open("wb") as stream:
        return subprocess.Popen(
            ["molecule", "test", *chosen],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def run() -> None:
    """Run both halves; show the whole output of one that fails."""
    for lab in LABS:
        command = [sys.executable, "tests/lab/demo.py", "hosts", "--name", lab, "--routers", "2"]
        subprocess.run(command, cwd=REPOSITORY, check=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="apiary-molecule-") as scratch:
        logs = [Path(scratch) / f"{lab}.log" for lab in LABS]
        started = time.monotonic()
        running = [
            start(lab, names, log) for lab, names, log in zip(LABS, halves(), logs, strict=True)
        ]
        with step("Running Molecule on two hosts"):
            codes = [process.wait() for process in running]
        for names, log, code in zip(halves(), logs, codes, strict=True):
            text = log.read_text(encoding="utf-8", errors="replace")
            if code:
                failed += names
            summary = text.rpartition("DETAILS")[2]
            sys.stdout.write(text if code else summary)
        say(f"Molecule: {time.monotonic() - started:.0f} s")
    if failed:
        raise error(
            "LAB-COMMAND",
            "molecule",
            f"failed among {', '.join(failed)}",
            "see above; `molecule test -s NAME` runs one",
        )


if __name__ == "__main__":
    sys.exit(guarded(run))
