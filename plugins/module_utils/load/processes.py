# SPDX-License-Identifier: GPL-3.0-or-later

"""Start the processes of a load generator together, and see all of them end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from bisect import bisect
from itertools import accumulate
from pathlib import Path

# How long a process may take to end by itself before it is killed.
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.05
LOG_BYTES = 4096
# As timeout(1) has it.
TIMED_OUT = 124
TICKS = os.sysconf("SC_CLK_TCK")
# Runs before the program: it dies with us, keeps to its CPUs, and is then the program itself.
LAUNCHER = """
import ctypes, os, sys
parent, cpus, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != parent:
    sys.exit(1)
if cpus:
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
try:
    os.execvp(argv[0], argv)
except OSError as failure:
    sys.exit("%s: %s" % (argv[0], failure.strerror))
"""


class Children:
    """The processes of one level; leaving the context ends what still runs of them."""

    def __init__(
        self, directory: Path, environment: dict[str, str], cpus: list[int] | None = None
    ) -> None:
        self.directory = directory
        self.environment = {**os.environ, **environment}
        self.cpus = ",".join(map(str, cpus or ()))
        self.running: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        # What must be called once a process is gone: a container outlives its command.
        self.after: list[list[str]] = []
        self.late: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_why: object) -> None:
        self.end()

    def start(
        self, name: str, argv: list[str], after: list[str] | None = None, pipe: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a program in a process group of its own; its words go to a file, or a pipe."""
        log = self.directory / f"{name}.log"
        with log.open("wb") as words:
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, str(os.getpid()), self.cpus, *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe else words,
                stderr=words,
                env=self.environment,
                cwd=self.directory,
                start_new_session=True,
            )
        self.running.append(process)
        self.logs.append(log)
        if after:
            self.after.append(after)
        return process

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended; say whether they did within this time.

        The first that fails ends the wait: the others would measure another load than was asked.
        """
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in self.running):
            if any(process.returncode for process in self.running):
                return True
            if time.monotonic() > deadline:
                self.late = [process for process in self.running if process.returncode is None]
                return False
            time.sleep(POLL_SECONDS)
        return True

    def end(self) -> None:
        """End every process with all that it started; what is gone already stays so."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running:
                # Its own children may outlive it, so the group is ended in any case.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + GRACE_SECONDS
            for process in self.running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        for process in self.running:
            if process.stdout is not None:
                process.stdout.close()
        while self.after:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    self.after.pop(), capture_output=True, check=False, timeout=10 * GRACE_SECONDS
                )

    def exit_codes(self) -> list[int]:
        """Return each one's exit code, a negative one for a signal, 124 for what took too long."""
        return [
            TIMED_OUT if one in self.late or one.returncode is None else one.returncode
            for one in self.running
        ]

    def words(self, secrets: list[str]) -> str:
        """Return the end of what each one said, without any secret."""
        parts = [f"== {log.stem} ==\n{_end(log)}" for log in self.logs]
        text = "\n".join(parts)
        for secret in secrets:
            text = text.replace(secret, "***") if secret else text
        return text

    def cpu_seconds(self) -> float:
        """Return the CPU time of those that run, and of what they have awaited themselves.

        Fields 14 to 17 of /proc/PID/stat: proc(5). One that has just ended counts as 0.
        """
        ticks = 0
        for process in self.running:
            with contextlib.suppress(OSError, ValueError):
                text = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
                ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
        return ticks / TICKS


def cpu_seconds() -> float:
    """Return the CPU time of all children that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_within(found: list[tuple[float, float]], window: tuple[float, float]) -> float:
    """Return the CPU time that was used in a window of the clock.

    ``found`` are clock and CPU time used until then, in any order; between them it is even.
    """
    clocks = sorted(clock for clock, _used in found)
    # A process that has ended is missed by the next look, never by the last.
    grown = list(accumulate((used for _clock, used in sorted(found)), max))

    def used_until(moment: float) -> float:
        place = bisect(clocks, moment)
        if place in (0, len(clocks)):
            return grown[max(0, place - 1)]
        first, last = clocks[place - 1 : place + 1]
        share = (moment - first) / (last - first)
        return grown[place - 1] + share * (grown[place] - grown[place - 1])

    begin, end = window
    return max(0.0, used_until(end) - used_until(begin))


def _end(path: Path) -> str:
    """Return the end of a log; of a progress bar only what it showed last."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LOG_BYTES))
        lines = stream.read().decode("utf-8", "replace").split("\n")
        return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return ""
