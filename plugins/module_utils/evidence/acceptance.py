# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure what evidence alone does not say: replicas' answers, reading, programs on GPUs."""

from __future__ import annotations

import contextlib
import glob
import mmap
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

from ..quality import Client, QualityError
from .gpu import cards, readings
from .sources import environment, find_tool

HEALTH_SECONDS = 10.0
# What is kept of a program's output: its beginning and, as verdicts come last, more of its end.
HEAD, TAIL = 2**18, 2**20
# Small files say nothing of a server's speed.
SMALLEST = 2**20
SAMPLE_SECONDS = 1.0
_HELD = re.compile(r"/kfd/proc/(\d+)/vram_\d+$")


def health(
    unit: str,
    address: str,
    port: int,
    authority: str | None = None,
    seconds: float = HEALTH_SECONDS,
) -> dict[str, Any]:
    """Ask a replica's /health; return its HTTP status, or why there is none.

    ``authority`` is the file that verifies one that speaks TLS.
    """
    host = f"[{address}]" if ":" in address else address
    client = Client(f"http{'s' * bool(authority)}://{host}:{port}", authority=authority)
    try:
        with client.response("/health", None, seconds) as response:
            return {"unit": unit, "status": response.status}
    except QualityError as failure:
        return {"unit": unit, "error": str(failure)}


class Reader:
    """Reads files by several threads past the page cache, up to a size and a time."""

    def __init__(self, most: int, seconds: float, block: int) -> None:
        self.most, self.block = most, block
        self.end = time.monotonic() + seconds
        self.bytes = 0
        self.problems: list[str] = []
        self._lock = threading.Lock()

    def work(self, waiting: list[tuple[str, int, int]]) -> None:
        """Read one piece after another until there is none, or it is enough."""
        buffer = mmap.mmap(-1, self.block)  # page-aligned, as direct reads want it
        with contextlib.closing(buffer):
            while True:
                with self._lock:
                    if not waiting or self._enough():
                        return
                    path, start, size = waiting.pop()
                try:
                    self._piece(path, start, size, buffer)
                except OSError as failure:
                    with self._lock:
                        self.problems.append(f"{path}: {failure.strerror or failure}")
                    return

    def _piece(self, path: str, start: int, size: int, buffer: mmap.mmap) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            at = start
            while at < start + size and not self._enough():
                got = os.preadv(handle, [buffer], at)
                if not got:
                    return
                at += got
                with self._lock:
                    self.bytes += got
        finally:
            os.close(handle)

    def _enough(self) -> bool:
        return self.bytes >= self.most or time.monotonic() > self.end


def pieces(paths: list[str], most: int, block: int) -> list[tuple[str, int, int]]:
    """Return what to read: the largest files first, cut so that all readers have work."""
    files = []
    for top in paths:
        for directory, _names, names in os.walk(top):
            for name in names:
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    size = os.stat(path).st_size
                    if os.path.isfile(path) and size >= SMALLEST:
                        files.append((size, path))
    # A store of blobs and links to them has each file twice.
    unique = {os.path.realpath(path): size for size, path in sorted(files)}
    cut: list[tuple[str, int, int]] = []
    total = 0
    for path, size in sorted(unique.items(), key=lambda one: (-one[1], one[0])):
        step = block * 16
        for start in range(0, size, step):
            if total >= most:
                return cut[::-1]
            cut.append((path, start, min(step, size - start)))
            total += min(step, size - start)
    return cut[::-1]


def read(paths: list[str], most: int, seconds: float, readers: int, block: int) -> dict[str, Any]:
    """Read files below paths; return bytes, seconds, how many files, and what went wrong."""
    waiting = pieces(paths, most, block)
    files = len({path for path, _start, _size in waiting})
    if not waiting:
        return {
            "bytes": 0,
            "seconds": 0.0,
            "files": 0,
            "error": f"no file of at least {SMALLEST} bytes below {', '.join(paths)}",
        }
    reader = Reader(most, seconds, block)
    threads = [
        threading.Thread(target=reader.work, args=(waiting,), daemon=True)
        for number in range(readers)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        # A server that is gone blocks a read for ever; its thread is left behind.
        thread.join(max(0.0, reader.end - time.monotonic()) + 5)
    spent = time.monotonic() - began
    result: dict[str, Any] = {"bytes": reader.bytes, "seconds": round(spent, 3), "files": files}
    if any(thread.is_alive() for thread in threads):
        result["error"] = f"a read did not end within {seconds:g} s"
    elif reader.problems:
        result["error"] = f"no direct reading: {reader.problems[0]}"
    return result


def in_use(limit: int, root: str = "/") -> str | None:
    """Return who holds more VRAM than a tool that only looks, or None."""
    held: dict[str, int] = {}
    for path in glob.glob(os.path.join(root, "sys/class/kfd/kfd/proc/*/vram_*")):
        match = _HELD.search(path)
        with contextlib.suppress(OSError, ValueError):
            with open(path, encoding="ascii") as stream:
                size = int(stream.read())
            if match:
                held[match[1]] = held.get(match[1], 0) + size
    for process, size in sorted(held.items()):
        if size > limit:
            return f"process {process} holds {size / 2**30:.0f} GiB of VRAM"
    return None


def run_all(requested: dict[str, Any], root: str = "/") -> list[dict[str, Any]]:
    """Run the programs one after another; those that all of them have no time for are not begun."""
    end = time.monotonic() + requested["seconds"] if requested.get("seconds") else float("inf")
    done = []
    for item in requested["runs"]:
        seconds = min(requested["run_seconds"], end - time.monotonic())
        outcome = run(item["attempts"], seconds, requested["idle_bytes"], root)
        done.append({"test": item["test"], "name": item["name"], **outcome})
    return done


def run(
    attempts: list[dict[str, Any]], seconds: float, idle_bytes: int, root: str = "/"
) -> dict[str, Any]:
    """Run the first attempt that is possible here; return what it printed and how it ended.

    ``installed`` is False where no attempt is possible. What holds VRAM is not disturbed.
    """
    missing = []
    for attempt in attempts:
        argv = [str(word) for word in attempt["argv"]]
        program = find_tool(argv[0])
        needs = attempt.get("needs")
        if program is None:
            missing.append(argv[0])
        elif needs and not os.path.isfile(needs):
            missing.append(needs)
        else:
            busy = in_use(idle_bytes, root) if seconds > 0 else "no time is left for it"
            if busy:
                return {"installed": True, "error": f"not run: {busy}"}
            return _run([program, *argv[1:]], seconds)
    tried = ", ".join(dict.fromkeys(missing))
    return {"installed": False, "error": f"not installed: {tried} not found"}


def _run(argv: list[str], seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    result: dict[str, Any] = {"installed": True, "argv": argv}
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )
        except OSError as failure:
            return {**result, "error": f"cannot be started: {failure.strerror or failure}"}
        clocks: dict[str, float] = {}
        known, deadline = cards(), began + seconds
        while True:
            for reading in readings(known):
                fastest = max(reading["clock_mhz"] or 0.0, clocks.get(reading["key"], 0.0))
                clocks[reading["key"]] = fastest
            try:
                left = deadline - time.monotonic()
                result["exit"] = process.wait(max(0.0, min(SAMPLE_SECONDS, left)))
                break
            except subprocess.TimeoutExpired:
                if left > SAMPLE_SECONDS:
                    continue
                result["error"] = f"did not end within {seconds:g} s"
                _end(process)
                break
        result["clocks"] = {key: mhz for key, mhz in clocks.items() if mhz}
        result["output"] = _kept(out)
    result["seconds"] = round(time.monotonic() - began, 1)
    return result


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started: first politely, for a killed one leaves GPUs in use."""
    for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def _kept(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if size <= HEAD + TAIL:
        return stream.read().decode("utf-8", errors="replace")
    head = stream.read(HEAD).decode("utf-8", errors="replace")
    stream.seek(size - TAIL)
    tail = stream.read().decode("utf-8", errors="replace")
    return f"{head}\n[{size - HEAD - TAIL} bytes left out]\n{tail}"
