# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host's GPU tools and kernel print, verbatim: the document `apiary.evidence/v1`.

The Ansible module imports it; ``ssh HOST python3 -`` runs it with nothing installed, sources.py in
place of its import. The controller says what is collected (``gpu`` of knowledge/evidence.yml). It
gathers and selects; it interprets nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import glob
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Callable, Optional, Union

from .sources import (
    AMD_VENDOR,
    GPU_CLASSES,
    PCI_DEVICES,
    PCI_FUNCTION,
    RECORD_BYTES,
    RECORDS,
    REFUSED,
    Commands,
    environment,
    errno_name,
    find_tool,
    listed,
    text,
)

SCHEMA = "apiary.evidence/v1"
COLLECTOR = "3"

# A finished command: exit code (None: it did not end by itself), stdout, stderr, error text.
Ran = tuple[Optional[int], Union[bytes, str], Union[bytes, str], Optional[str]]
Runner = Callable[[list[str]], Ran]

TIMEOUT_SECONDS = 60.0
# After this much time no further command is begun, so that a sick host answers, too.
BUDGET_SECONDS = 240.0
# Reading sysfs of a GPU that hangs can block for ever, and can't be interrupted.
FILES_SECONDS = 60.0
OUTPUT_LIMIT = 4 * 2**20
# Tools that run beside each other.
WORKERS = 4
# A sysfs attribute fits one page, a plan a few; anything larger is not what we came for.
FILE_LIMIT = 2**20
FILES_LIMIT = 32 * 2**20
INTERFACES = 256
OPEN_FILES = 65536
NO_ANSWER = "no answer"


def raise_file_limit() -> None:
    """Allow more open files, as far as this user may: amd-smi needs many with 64 partitions."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        # Some containers forbid it, and only hosts with many partitions need it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def run_command(argv: list[str]) -> Ran:
    """Run one tool; return its exit code, standard output, standard error and an error text.

    A tool that is absent or runs into the timeout has the exit code None.
    """
    path = find_tool(argv[0])
    if path is None:
        return None, b"", b"", "not found"
    try:
        return run_to_files([path, *argv[1:]])
    except OSError as problem:
        return None, b"", b"", errno_name(problem)


def run_to_files(argv: list[str]) -> Ran:
    """Run a tool with files for its output: a child that outlives it would hold a pipe open."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        # pylint: disable=consider-using-with
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment(),
            start_new_session=True,
        )
        problem: str | None = None
        code: int | None = None
        try:
            code = process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"{NO_ANSWER} within {TIMEOUT_SECONDS:g} s"
            end_group(process)
        out, cut = beginning(stdout)
        err, _cut = beginning(stderr)
    if cut and problem is None:
        problem = f"output cut at {OUTPUT_LIMIT} bytes"
    return code, out, err, problem


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a tool and what it started; one that the kernel won't let go is left behind."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(2)


def beginning(stream: IO[bytes]) -> tuple[bytes, bool]:
    """Return what was written to a stream, as far as it is kept, and whether there was more."""
    stream.seek(0)
    data = stream.read(OUTPUT_LIMIT + 1)
    return data[:OUTPUT_LIMIT], len(data) > OUTPUT_LIMIT


def record(run: Runner, argv: tuple[str, ...]) -> dict[str, Any]:
    """Run one command and return its entry."""
    start = time.monotonic()
    code, stdout, stderr, problem = run(list(argv))
    entry = {
        "argv": list(argv),
        "exit": code,
        "stdout": text(stdout),
        "stderr": text(stderr),
        "seconds": round(time.monotonic() - start, 3),
    }
    if problem is not None:
        entry["error"] = problem
    return entry


def answered(entry: dict[str, Any]) -> bool:
    """Say whether an attempt is worth keeping: amd-smi reports refusals on stdout, with exit 0."""
    stdout = entry["stdout"].strip()
    if not stdout or '"error"' in stdout[:400]:
        return False
    # rocm-smi up to 5.2 exits 2 beside complete data: JSON, or text up to its last rule.
    return entry["exit"] == 0 or stdout[-1] in "]}="


class Files:
    """Reads below a root, and remembers what was there but could not be read."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self.current = ""
        self.size = 0

    def paths(self, pattern: str) -> list[str]:
        """Return the paths that match, as the host names them."""
        matches = glob.glob(self.root + pattern)
        return sorted(path[len(self.root) :] for path in matches)

    def read(self, path: str, limit: int = FILE_LIMIT, flags: int = 0) -> str | None:
        """Keep the content of one file; return it, or None."""
        self.current = path
        try:
            opener = (lambda name, mode: os.open(name, mode | flags)) if flags else None
            with open(self.root + path, "rb", opener=opener) as stream:
                content = text(stream.read(limit) or b"")
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.unreadable[path] = errno_name(problem)
            return None
        self.size += len(content)
        if self.size > FILES_LIMIT:
            self.unreadable[path] = "EFBIG"
            return None
        self.files[path] = content
        return content

    def read_all(self, pattern: str) -> None:
        """Keep the content of every file that matches."""
        for path in self.paths(pattern):
            self.read(path)

    def link(self, path: str) -> str:
        """Keep the target of a symbolic link, if it is one; return it, or nothing."""
        try:
            self.links[path] = os.readlink(self.root + path)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                self.unreadable[path] = errno_name(problem)
        return self.links.get(path, "")


def collect_files(found: Files, tables: dict[str, Any], siblings: bool) -> None:
    """Read the kernel's view: KFD, the AMD GPUs on PCI, DRM, NUMA, network interfaces."""
    for pattern in tables["files"]:
        found.read_all(pattern)
    for path in found.paths(RECORDS)[:INTERFACES]:
        found.read(path, RECORD_BYTES, os.O_NOFOLLOW | os.O_NONBLOCK)
    if siblings:
        found.read_all(tables["siblings"])
    for device in found.paths(PCI_DEVICES + "/*"):
        probe = Files(found.root)
        vendor, kind = probe.read(device + "/vendor"), probe.read(device + "/class")
        if (vendor or "").strip() != AMD_VENDOR or not (kind or "").startswith(GPU_CLASSES):
            continue
        for name in tables["device"]:
            found.read(device + "/" + name)
        found.read_all(device + "/fw_version/*")
        for name in tables["device_links"]:
            found.link(device + "/" + name if name else device)
    for pattern in tables["drm_links"]:
        for path in found.paths(pattern):
            if "-" not in os.path.basename(path):  # card0-DP-1 is a connector
                found.link(path)
    collect_interfaces(found, tables["interfaces"])
    collect_bridges(found, tables["bridge"])


def collect_interfaces(found: Files, interfaces: dict[str, list[str]]) -> None:
    """Read the network interfaces that are devices; bonds, bridges and loopback are none."""
    for directory, names in interfaces.items():
        for path in found.paths(directory + "/*")[:INTERFACES]:
            if not PCI_FUNCTION.search(found.link(path)):
                found.links.pop(path, None)
                continue
            found.link(path + "/device/physfn")
            for name in names:
                found.read(path + "/" + name)


def collect_bridges(found: Files, attributes: list[str]) -> None:
    """Read the PCI functions on the way to every GPU and interface."""
    functions = {name for target in found.links.values() for name in PCI_FUNCTION.findall(target)}
    for name in sorted(functions):
        base = PCI_DEVICES + "/" + name
        if base + "/class" not in found.files:
            for attribute in attributes:
                found.read(base + "/" + attribute)


def in_time(root: str, read_all: Callable[[Files], None]) -> Files:
    """Read all files, or as many as FILES_SECONDS allow; the one that blocks is unreadable."""
    files = Files(root)
    reader = threading.Thread(target=read_all, args=(files,), daemon=True)
    reader.start()
    reader.join(FILES_SECONDS)
    if not reader.is_alive():
        return files
    read = Files(root)
    # The reader may go on: what has been read so far is taken.
    read.files, read.links = files.files.copy(), files.links.copy()
    read.unreadable = {**files.unreadable.copy(), files.current: "ETIMEDOUT"}
    return read


def collect_commands(
    run: Runner, wanted: Commands, unless: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """Run every command, a tool's one after the other and tools beside each other.

    Two calls of one tool may disturb each other (rocm-smi locks its GPUs); different tools only
    wait. ``unless`` has those that are run only where another's answer lacks a pattern: they wait
    for all of them.
    """
    started = time.monotonic()
    chains: dict[str, list[tuple[str, tuple[tuple[str, ...], ...]]]] = {}
    for name, attempts in wanted:
        if name not in unless:
            chains.setdefault(attempts[0][0], []).append((name, attempts))
    absent: dict[str, dict[str, Any]] = {}
    results: dict[str, dict[str, dict[str, Any]]] = {}

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                for name, attempts in waiting.pop(0):
                    results[name] = attempt(run, name, attempts, absent, started)

    # The longest first, so that it is not what everything waits for in the end.
    waiting = sorted(chains.values(), key=len, reverse=True)
    workers = [threading.Thread(target=work, daemon=True) for _number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name, attempts in wanted:
        if name not in unless:
            continue
        other, pattern = unless[name]
        if not any(
            re.search(pattern, result["stdout"]) for result in results.get(other, {}).values()
        ):
            results[name] = attempt(run, name, attempts, absent, started)
    return {
        label: result
        for name, _attempts in wanted
        for label, result in results.get(name, {}).items()
    }


def attempt(
    run: Runner,
    name: str,
    attempts: tuple[tuple[str, ...], ...],
    absent: dict[str, dict[str, Any]],
    started: float,
) -> dict[str, dict[str, Any]]:
    """Run a command's forms until one answers; one that is absent, or has hung, is not run again.

    ``absent`` is of all commands of the same tool.
    """
    commands: dict[str, dict[str, Any]] = {}
    refused: set[str] = set()
    for number, argv in enumerate(attempts):
        label = name if number == 0 else f"{name}_{number + 1}"
        if argv[0] in absent:
            commands[label] = dict(absent[argv[0]], argv=list(argv))
            break
        if refused.intersection(argv):
            continue
        if time.monotonic() - started > BUDGET_SECONDS:
            commands[label] = not_run(argv, f"no time left after {BUDGET_SECONDS:g} s")
            break
        entry = commands[label] = record(run, argv)
        problem = entry.get("error", "")
        if problem == "not found":
            absent[argv[0]] = entry
        elif problem.startswith(NO_ANSWER):
            absent[argv[0]] = not_run(argv, f"not run: {argv[0]} gave no answer before")
        if answered(entry) or argv[0] in absent:
            break
        for words in REFUSED.findall(entry["stderr"]):
            refused.update(words.split())
    return commands


def not_run(argv: tuple[str, ...], problem: str) -> dict[str, Any]:
    """Return the entry of a command that was not begun."""
    return {
        "argv": list(argv),
        "exit": None,
        "stdout": "",
        "stderr": "",
        "seconds": 0.0,
        "error": problem,
    }


def collect(tables: dict[str, Any], run: Runner = run_command, root: str = "/") -> dict[str, Any]:
    """Return the evidence of this host's GPUs.

    ``tables`` are what is collected. ``run`` takes an argv and returns (exit or None, stdout,
    stderr, error or None); ``root`` is where /sys, /proc and /etc are found.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    raise_file_limit()
    commands = collect_commands(run, listed(tables["commands"]), tables["unless"])
    siblings = commands["lscpu"]["exit"] != 0
    return document(
        started, commands, in_time(root, lambda found: collect_files(found, tables, siblings))
    )


def document(
    started: datetime.datetime, commands: dict[str, dict[str, Any]], found: Files
) -> dict[str, Any]:
    """Return what was collected in the form of `apiary.evidence/v1`."""
    return {
        "schema": SCHEMA,
        "host": platform.node().split(".")[0],
        "collected_at": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "collector": COLLECTOR,
        "commands": commands,
        "files": found.files,
        "links": found.links,
        "unreadable": found.unreadable,
    }


def main(tables: str) -> None:
    """Print the evidence; ``tables`` are JSON. Over SSH the call stands at the end of this text."""
    sys.stdout.write(json.dumps(collect(json.loads(tables)), sort_keys=True) + "\n")


SYSFS = Path("/sys/class/drm")
Reading = dict[str, Any]


def cards(root: Path = SYSFS) -> list[tuple[str, Path]]:
    """Return PCI address and sensor directory of each AMD GPU, in the order of addresses."""
    found: dict[str, Path] = {}
    for card in root.glob("card[0-9]*"):
        if "-" in card.name:  # a connector
            continue
        device = card / "device"
        for sensors in device.glob("hwmon/hwmon*"):
            if _text(sensors / "name") == "amdgpu":
                found[device.resolve().name] = sensors
    return sorted(found.items())


def readings(known: list[tuple[str, Path]]) -> list[Reading]:
    """Return power (W) and clock (MHz) of each card; None where a sensor does not tell.

    Files and units: kernel documentation, gpu/amdgpu/thermal: microwatts and hertz.
    """
    found = []
    for key, sensors in known:
        power = _number(sensors / "power1_average")
        power = _number(sensors / "power1_input") if power is None else power
        clock = _number(sensors / "freq1_input")
        if power is not None or clock is not None:
            found.append(
                {
                    "key": key,
                    "power_w": None if power is None else power / 1e6,
                    "clock_mhz": None if clock is None else clock / 1e6,
                }
            )
    return found


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def _number(path: Path) -> float | None:
    with contextlib.suppress(ValueError):
        return float(_text(path))
    return None
