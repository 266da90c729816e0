# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the service manager is told: sd_notify(3) without its library."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

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
