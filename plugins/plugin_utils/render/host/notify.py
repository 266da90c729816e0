# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the service manager is told: sd_notify(3) without its library."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

# Not the engine's to use: it would ping the watchdog of a supervisor that is gone.
VARIABLES = ("NOTIFY_SOCKET", "APIARY_NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends assignments to $NOTIFY_SOCKET; where that is missing, closed or full, nothing happens.

    In a container also to $APIARY_NOTIFY_SOCKET, systemd's own: conmon passes on less than all.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = [environment.get(name, "") for name in ("NOTIFY_SOCKET", "APIARY_NOTIFY_SOCKET")]
        self._addresses = [
            "\0" + address[1:] if address.startswith("@") else address
            for address in named
            if address
        ]
        self._status = ""
        self._socket = None
        if self._addresses:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "")
        # Three pings fit into the time, so that one may come late.
        self.ping_seconds = int(microseconds) / 3e6 if watched and microseconds.isdigit() else None

    def send(self, **fields: object) -> None:
        """Send assignments in one message, as READY=1."""
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        for address in self._addresses:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, address)

    def status(self, text: str) -> None:
        """Show a line in `systemctl status`, when it is another."""
        text = " ".join(text.split())
        if text != self._status:
            self._status = text
            self.send(STATUS=text)

    def extend(self, seconds: float) -> None:
        """Ask for so many more seconds to start, from now."""
        self.send(EXTEND_TIMEOUT_USEC=int(seconds * 1e6))
