# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's lines on their way to the journal, ours between them, what systemd is told.

A thread per stream takes the engine's output as it comes, so that it never waits; another hands it
on. Bytes are not changed, but for secrets, which vLLM has written down (vllm-project/vllm#52523).
Only where the journal takes nothing for long are lines dropped, and counted.
"""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping

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


# Not the engine's to use: it would ping the watchdog of a supervisor that is gone.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


PATIENCE_SECONDS = 2


class Notifier:
    """Sends assignments to $NOTIFY_SOCKET; where that is missing, closed or full, nothing happens.

    Only what must arrive is waited for a little, and sent again with all that comes after it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""
        self._owed: bytes | None = None
        self._socket = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            # Not settimeout(): a datagram socket shows as writable while its peer's queue is full.
            patience = struct.pack("ll", PATIENCE_SECONDS, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "")
        # Three pings fit into the time, so that one may come late.
        self.ping_seconds = int(microseconds) / 3e6 if watched and microseconds.isdigit() else None

    def send(self, **fields: object) -> None:
        """Send assignments in one message, as READY=1."""
        if self._owed is not None and not self._is_full(self._owed, socket.MSG_DONTWAIT):
            self._owed = None
        self._is_full(_assignments(fields), socket.MSG_DONTWAIT)

    def tell(self, **fields: object) -> None:
        """Send what must arrive, READY=1 or STOPPING=1; waits a little where nobody reads."""
        text = _assignments(fields)
        # Of two such the later is true.
        self._owed = text if self._is_full(text, 0) else None

    def _is_full(self, text: bytes, flags: int) -> bool:
        """Send, and say whether that is worth another try."""
        try:
            if self._socket is not None:
                self._socket.sendto(text, flags, self._address)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def status(self, text: str) -> None:
        """Show a line in `systemctl status`, when it is another."""
        text = " ".join(text.split())
        if text != self._status:
            self._status = text
            self.send(STATUS=text)

    def extend(self, seconds: float) -> None:
        """Ask for so many more seconds to start, from now."""
        self.send(EXTEND_TIMEOUT_USEC=int(seconds * 1e6))


def _assignments(fields: Mapping[str, object]) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in fields.items()).encode()
