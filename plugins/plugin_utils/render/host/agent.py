# SPDX-License-Identifier: GPL-3.0-or-later

"""Tells routers whether this replica takes requests: HAProxy's agent check.

An engine that drains refuses new requests with 500 while its /health still says 200.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

from .context import Context, replica_error


class Agent:
    """Answers every connection to the agent port with one line; without a port it does nothing.

    `up` or `down` alone: HAProxy takes `ready`, `drain` and `maint` for an operator's orders. What
    a client sends is not read.
    """

    def __init__(self, context: Context) -> None:
        """Take the port, which refuses connections still; raises REPLICA-PORT-BUSY."""
        self._known = context.life["agent"]
        self._line = b"down\n"
        self._asked = float("-inf")
        self._ended = False
        self._socket: socket.socket | None = None
        host, port = context.spec.listen_address, context.spec.agent_port
        if port is None:
            return
        try:
            self._socket = _bound(host, port)
        except OSError as failure:
            raise replica_error(
                "REPLICA-PORT-BUSY",
                f"cannot listen on {host} port {port}, where routers ask how it is: "
                f"{os.strerror(failure.errno or 0)}",
            ) from failure

    def start(self) -> None:
        """Answer from now on, `down` at first; after the engine's fork, for it starts a thread."""
        if self._socket is not None:
            self._socket.listen(self._known["backlog"])
            threading.Thread(target=self._run, name="agent", daemon=True).start()

    def up(self) -> None:
        self._line = b"up\n"

    def down(self) -> float:
        """Say so from now on; returns in how many seconds every router that asks knows it."""
        self._line = b"down\n"
        if time.monotonic() - self._asked > self._known["asked_within_seconds"]:
            return 0.0
        return float(self._known["interval_seconds"] + self._known["margin_seconds"])

    def end(self) -> None:
        """Listen no more; HAProxy keeps what it was told last."""
        self._ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # A close alone doesn't wake the thread.
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _run(self) -> None:
        while not self._ended and self._socket is not None:
            with contextlib.suppress(OSError):
                connection, _address = self._socket.accept()
                with connection:
                    connection.setblocking(False)
                    connection.send(self._line)
                    self._asked = time.monotonic()
            # Whoever asks without end gets no more of this process than that.
            time.sleep(self._known["pause_seconds"])


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _name, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # Connections of the start before still wait out their time.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
