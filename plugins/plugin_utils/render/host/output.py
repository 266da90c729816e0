# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's lines on their way to the journal, and our own between them.

A thread per stream takes the engine's output as it comes, so that it never waits; another hands it
on. Bytes are not changed, but for secrets, which vLLM has written down (vllm-project/vllm#52523).
Only where the journal takes nothing for long are lines dropped, and counted.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Callable, Iterable

READ_BYTES = 65536
# A longer line is handed on in parts, as journald does (LineMax= is 48 KiB).
LINE_BYTES = 65536
HELD_BYTES = 8 * 1024 * 1024
_PRIORITIES = {"error": "<3>", "warning": "<4>", "info": "<6>"}


class Sink:
    """Writes to a file descriptor from a thread of its own, in order; never makes others wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Hand on some bytes; what no longer fits is dropped and counted in lines."""
        with self._changed:
            if self._bytes + len(data) > HELD_BYTES:
                self._dropped += max(data.count(b"\n"), 1)
                return
            if self._dropped:
                note = b"warning: the journal was too slow; lines dropped: %d\n" % self._dropped
                self._held.append(note)
                self._bytes += len(note)
                self._dropped = 0
            self._held.append(data)
            self._bytes += len(data)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Wait until all is written, at most so long."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._held and not self._closed:
                    self._changed.wait()
                if not self._held:
                    return
                data = b"".join(self._held)
                self._held.clear()
            with contextlib.suppress(OSError):  # a journal that is gone is not the engine's trouble
                self._write(data)
            with self._changed:
                self._bytes -= len(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


class Journal:
    """Standard output and error of the unit."""

    def __init__(self, by_systemd: bool = False) -> None:
        self._prefixed = by_systemd
        self._sinks: dict[int, Sink] = {}

    def sink(self, descriptor: int) -> Sink:
        """Return the one writer of a file descriptor."""
        if descriptor not in self._sinks:
            self._sinks[descriptor] = Sink(descriptor)
        return self._sinks[descriptor]

    def say(self, line: str, severity: str = "info") -> None:
        """Write a line of our own, with the journal's priority where the journal reads it."""
        prefix = _PRIORITIES[severity] if self._prefixed else ""
        self.sink(2).put((prefix + line + "\n").encode(errors="backslashreplace"))

    def close(self, seconds: float = 5) -> None:
        """Write out what is held."""
        for sink in self._sinks.values():
            sink.close(seconds)
        self._sinks.clear()


class Pump(threading.Thread):
    """Reads a pipe to its end: whole lines go to a sink as they are, each is shown to ``see``.

    Of a line none of ``secrets`` is handed on or shown.
    """

    def __init__(
        self, pipe: int, sink: Sink, see: Callable[[str], None], secrets: Iterable[str] = ()
    ) -> None:
        super().__init__(name="engine-output", daemon=True)
        self._pipe, self._sink, self._see = pipe, sink, see
        self._secrets = [secret.encode() for secret in secrets]
        self._unseen = b""

    def run(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(self._pipe, READ_BYTES)
            except OSError:
                data = b""
            if not data:
                break
            self._look(data)
            rest += data
            whole = rest.rfind(b"\n") + 1
            if len(rest) - whole > LINE_BYTES:
                whole = len(rest)
            if whole:
                self._put(rest[:whole])
                rest = rest[whole:]
        if rest:
            self._put(rest)
        os.close(self._pipe)

    def _put(self, data: bytes) -> None:
        self._sink.put(self._masked(data))

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        return data

    def _look(self, data: bytes) -> None:
        # Progress bars end their lines with a carriage return.
        *lines, unseen = (self._unseen + data).replace(b"\r", b"\n").split(b"\n")
        self._unseen = unseen[:LINE_BYTES]
        for line in lines:
            if line:
                self._see(self._masked(line).decode("utf-8", "replace"))
