# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring files into a directory, several at once, hashing them as they arrive.

A file is written to ``.apiary-incoming/PATH`` and takes its place when its hash is right and it is
durable: what has a place needs no second look. What has arrived of the others is where the next
run goes on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import threading
import time
from typing import IO, Any, Callable, Protocol, TypeVar

from ..finding import ApiaryError, error
from .hub import BROKEN, SourceFile, TransientError, broken
from .manifest import CHUNK, ManifestFile, hash_file

INCOMING = ".apiary-incoming"
# Beyond 50 GB the hub serves no file in one answer: large ones are asked for in parts.
PART = 16 * 2**30
# An attempt that brought this much is no failure in a row.
HEADWAY = 16 * 2**20
LONGEST_WAIT = 120.0
FULL = (errno.ENOSPC, errno.EDQUOT)
T = TypeVar("T")


class Source(Protocol):
    """Where files come from: the hub, or a directory."""

    @property
    def name(self) -> str: ...

    def open_file(self, path: str, offset: int, end: int | None) -> tuple[IO[bytes], int]:
        """Return a file's bytes up to an end, if one is given, and the offset where they begin.

        Raises TransientError for what may pass, and ApiaryError.
        """


class StoppedError(Exception):
    """Another file's failure ended this one's transfer."""


class Patience:
    """How often what may pass is tried again, and after how long; a failure ends all waits."""

    def __init__(self, retries: int, delay: float) -> None:
        self.retries = retries
        self.delay = delay
        self.stopped = threading.Event()

    def wait(self, failures: int, problem: TransientError) -> None:
        """Wait before the next attempt; raise what to tell if there is to be none."""
        if failures > self.retries:
            raise problem.final
        doubled = self.delay * 2.0 ** (failures - 1)
        seconds = problem.wait if problem.wait is not None else min(doubled, LONGEST_WAIT)
        if self.stopped.wait(seconds):
            raise StoppedError

    def ask(self, question: Callable[[], T]) -> T:
        """Return an answer, asked for until it comes."""
        failures = 0
        while True:
            try:
                return question()
            except TransientError as problem:
                failures += 1
                self.wait(failures, problem)


class Progress:
    """How far a long step is, in a file that whoever waits for it can read; None writes none."""

    def __init__(self, path: str | None, doing: str, total: int) -> None:
        self.path = path
        self.doing = doing
        self.total = total
        self.done = 0
        self.begun = time.monotonic()
        self.told = 0.0
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes; they are less than nothing where a file begins anew."""
        with self.lock:
            self.done += count
            now = time.monotonic()
            if self.path is None or now - self.told < 1.0:
                return
            self.told = now
            document = {
                "doing": self.doing,
                "bytes_done": self.done,
                "bytes_total": self.total,
                "bytes_per_second": int(self.done / max(now - self.begun, 1e-3)),
            }
            with open(self.path + ".new", "w", encoding="utf-8") as stream:
                json.dump(document, stream)
            os.rename(self.path + ".new", self.path)


def store_problem(path: str, failure: OSError) -> ApiaryError:
    """Return why the store cannot be written."""
    if failure.errno in FULL:
        return error("WEIGHTS-FETCH-SPACE", path, f"the file system is full: {failure.strerror}")
    return error("WEIGHTS-PUBLISH-STORE", path, f"cannot be written: {failure.strerror or failure}")


class Incoming:
    """One file on its way: its hashes follow what is written, and are taken up after a restart."""

    def __init__(self, path: str, wanted: SourceFile, progress: Progress) -> None:
        self.path = path
        self.wanted = wanted
        self.progress = progress
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # pylint: disable=consider-using-with
        self.stream = open(path, "ab+", buffering=0)  # noqa: SIM115 - closed by close()
        self.begin()
        self.stream.seek(0)
        while True:
            chunk = self.stream.read(CHUNK)
            if not chunk:
                break
            self.count(chunk)

    def begin(self) -> None:
        """Start the hashes."""
        self.size = 0
        self.sha256 = hashlib.sha256()
        self.git_sha1 = hashlib.sha1(b"blob %d\0" % self.wanted.size, usedforsecurity=False)

    def count(self, chunk: bytes) -> None:
        """Follow what is in the file."""
        self.size += len(chunk)
        self.sha256.update(chunk)
        if self.wanted.git_sha1:
            self.git_sha1.update(chunk)
        self.progress.add(len(chunk))

    def write(self, chunk: bytes) -> None:
        """Append; a write may be short."""
        view = memoryview(chunk)
        while view:
            view = view[self.stream.write(view) :]
        self.count(chunk)

    def restart(self) -> None:
        """Begin anew."""
        self.progress.add(-self.size)
        self.stream.truncate(0)
        self.begin()

    def right(self) -> bool:
        """Say whether what has arrived is what was asked for."""
        found_sha256, found_git = self.sha256.hexdigest(), self.git_sha1.hexdigest()
        return (
            self.size == self.wanted.size
            and self.wanted.sha256 in (None, found_sha256)
            and self.wanted.git_sha1 in (None, found_git)
        )

    def close(self) -> None:
        self.stream.close()


def receive(incoming: Incoming, source: Source, patience: Patience) -> None:
    """Go on with a file from where it is; return at the end of a part, or if it is too long.

    Raises TransientError, ApiaryError, StoppedError, and OSError if the store isn't writable.
    """
    end = min(incoming.wanted.size, incoming.size + PART)
    partly = incoming.wanted.size > PART
    stream, start = source.open_file(incoming.wanted.path, incoming.size, end if partly else None)
    with contextlib.closing(stream):
        if start != incoming.size:
            incoming.restart()
        while incoming.size <= incoming.wanted.size:
            if patience.stopped.is_set():
                raise StoppedError
            try:
                chunk = stream.read(CHUNK)
            except BROKEN as failure:
                raise broken(source.name, failure) from failure
            if not chunk:
                break
            incoming.write(chunk)
    if incoming.size < end:
        problem = error(
            "WEIGHTS-FETCH-TRUNCATED",
            incoming.wanted.path,
            f"ends again and again after {incoming.size} of {incoming.wanted.size} bytes",
        )
        raise TransientError(problem)


def fetch_file(
    wanted: SourceFile, directory: str, source: Source, patience: Patience, progress: Progress
) -> ManifestFile:
    """Bring one file to its place below a directory, and return what the manifest says of it."""
    place = os.path.join(directory, wanted.path)
    if os.path.isfile(place) and os.path.getsize(place) == wanted.size:
        progress.add(wanted.size)
        return ManifestFile(wanted.path, wanted.size, wanted.sha256 or hash_file(place))
    incoming = Incoming(os.path.join(directory, INCOMING, wanted.path), wanted, progress)
    try:
        arrive(incoming, source, patience)
        os.fsync(incoming.stream.fileno())
        os.fchmod(incoming.stream.fileno(), 0o444)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.rename(incoming.path, place)
    finally:
        incoming.close()
    return ManifestFile(wanted.path, wanted.size, incoming.sha256.hexdigest())


def arrive(incoming: Incoming, source: Source, patience: Patience) -> None:
    """Receive a file until it is right; one that was taken up and is wrong begins anew, once."""
    failures = 0
    again = True
    while not incoming.right():
        before = incoming.size
        try:
            while incoming.size < incoming.wanted.size:
                receive(incoming, source, patience)
        except TransientError as problem:
            failures = 1 if incoming.size - before >= HEADWAY else failures + 1
            patience.wait(failures, problem)
            continue
        if incoming.right():
            return
        told = f"{incoming.size} bytes with the SHA-256 {incoming.sha256.hexdigest()}"
        incoming.restart()
        if not again:
            expected = incoming.wanted.sha256 or f"git blob {incoming.wanted.git_sha1}"
            raise error(
                "WEIGHTS-FETCH-HASH",
                incoming.wanted.path,
                f"found {told}, expected {incoming.wanted.size} bytes with {expected}, twice",
            )
        again = False


def fetch(
    wanted: list[SourceFile],
    directory: str,
    source: Source,
    patience: Patience,
    parallel: int,
    progress_path: str | None = None,
) -> list[ManifestFile]:
    """Bring files below a directory, the largest first; the first failure ends all.

    Raises ApiaryError. What has arrived stays, and the next call goes on from there.
    """
    progress = Progress(progress_path, "fetching", sum(one.size for one in wanted))
    largest = sorted(wanted, key=lambda one: (-one.size, one.path))

    def bring(one: SourceFile) -> Any:
        try:
            if patience.stopped.is_set():
                raise StoppedError
            return fetch_file(one, directory, source, patience, progress)
        except (StoppedError, ApiaryError) as failure:
            patience.stopped.set()
            return failure
        except OSError as failure:
            patience.stopped.set()
            return store_problem(os.path.join(directory, one.path), failure)

    with concurrent.futures.ThreadPoolExecutor(max(1, parallel)) as pool:
        results = list(pool.map(bring, largest))
    for result in results:
        if isinstance(result, ApiaryError):
            raise result
    return sorted(results)


def at_hand(wanted: list[SourceFile], directory: str) -> int:
    """Return how many bytes of the wanted files are in a directory already."""
    total = 0
    for one in wanted:
        for place in (one.path, os.path.join(INCOMING, one.path)):
            with contextlib.suppress(OSError):
                total += min(os.path.getsize(os.path.join(directory, place)), one.size)
                break
    return total
