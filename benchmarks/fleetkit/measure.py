# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a command of the controller and tell what it cost: time, CPU, memory of all its processes.

SSH's masters outlive the command that made them, and leave its process tree. This process is
therefore their subreaper, finds them among its descendants, and ends them after each command, so
that every command connects anew.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
# Walking 1,000 processes takes a tenth of a second; the walk must not be the load.
SAMPLE_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a command cost: seconds of time, seconds of CPU, MB (10^6 bytes) of memory.

    ``cpu`` is of the command and all that it started, ``memory`` the highest sum of their
    proportional set sizes (pages that n processes share count 1/n each) of those seen. ``load``
    is the machine's load average before and after. ``hosts_cpu`` is what the simulated hosts
    used meanwhile, None where they are not ours to count.
    """

    seconds: float
    cpu: float
    memory: float
    load: tuple[float, float]
    code: int
    said: str = field(repr=False)
    hosts_cpu: float | None = None


def subreaper() -> None:
    """Have orphans of our commands become our children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float = 7200,
    cgroups: Sequence[Path] = (),
) -> Cost:
    """Run a command to its end; ``cgroups`` are the cpuacct directories of the hosts."""
    others = set(descendants())
    before, used = os.getloadavg()[0], children_cpu()
    hosts = hosts_cpu(cgroups)
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as sockets:
        environment = {**environment, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets}
        with tempfile.TemporaryFile("w+") as stream:
            started = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            with sampled(others) as peak:
                code = process.wait(timeout)
            seconds = time.monotonic() - started
            stream.seek(0)
            said = stream.read()
        later = hosts_cpu(cgroups)
        end(set(descendants()) - others)
    spent = None if hosts is None or later is None else later - hosts
    # Ended and waited for, the masters are among the children.
    cpu = children_cpu() - used
    return Cost(seconds, cpu, max(peak), (before, os.getloadavg()[0]), code, said, spent)


def children_cpu() -> float:
    """Return the CPU time of all children that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def hosts_cpu(cgroups: Sequence[Path]) -> float | None:
    """Return the CPU time of the simulated hosts so far, in seconds."""
    try:
        spent = [int((one / "cpuacct.usage").read_text()) for one in cgroups]
    except OSError:
        return None
    return sum(spent) / 1e9 if spent else None


@contextmanager
def sampled(others: set[int]) -> Iterator[list[float]]:
    """Sample the memory of our descendants but ``others``; the list grows by MB."""
    seen, over = [0.0], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            seen.append(sum(map(proportional, set(descendants()) - others)) / 1e6)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def proportional(process: int) -> float:
    """Return a process's proportional set size in bytes, 0 if it is gone."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(
        (float(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


def descendants() -> list[int]:
    """Return all processes below this one."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def end(processes: set[int]) -> None:
    """End what a command left running, and wait for those that are our own children."""
    for process in processes:
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 10
    while processes & set(descendants()) and time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)  # nothing tells when another's child ends
        except ChildProcessError:
            break
