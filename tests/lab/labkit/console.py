# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the lab speaks: refusals as findings, progress as one line per long step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

# The lab starts before any environment exists, so it finds the collection by itself.
sys.path.insert(0, str(REPOSITORY / "collections"))

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (  # noqa: E402
    ApiaryError,
    error,
)

__all__ = ["REPOSITORY", "ApiaryError", "await_condition", "error", "guarded", "run", "say", "step"]


def say(message: str) -> None:
    """Print one progress line; standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def step(message: str) -> Iterator[None]:
    """Announce a step that takes more than a few seconds, and say how long it took."""
    say(f"{message} ...")
    started = time.monotonic()
    yield
    say(f"{message}: done in {time.monotonic() - started:.0f} s")


def run(
    argv: Sequence[str | Path], *, data: bytes | None = None, check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with captured output; refuse with its last words when it fails."""
    try:
        done = subprocess.run([str(part) for part in argv], input=data, capture_output=True)
    except OSError as problem:
        raise error(
            "LAB-COMMAND",
            str(argv[0]),
            f"cannot be run: {problem.strerror}",
        ) from problem
    if check and done.returncode != 0:
        # One line, and the end of it: some programs give the cause first, others last.
        output = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        raise error(
            "LAB-COMMAND",
            " ".join(str(part) for part in argv[:3]),
            f"exit status {done.returncode}: {output[-400:]}",
        )
    return done


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(no output)"


def await_condition(condition: Callable[[], bool], seconds: float) -> bool:
    """Say whether the condition came true in time; it is asked five times a second."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def guarded(work: Callable[[], None]) -> int:
    """Do the work and return the exit code; a refusal is a finding on standard error."""
    try:
        work()
    except ApiaryError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except OSError as problem:
        subject = str(problem.filename or "this machine")
        print(error("LAB-FILE", subject, str(problem.strerror)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
