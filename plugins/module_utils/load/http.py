# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP/1.1 for a load generator: an epoll loop, connections that are kept, cheap event streams.

Every chunk of every answer passes here, so it does less than asyncio and a JSON parser would:
all that one epoll brings is stamped with the time it was brought, before any of it is read.
Times are seconds of `time.perf_counter`, the same clock for every process of a Linux host.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import select
import socket
import ssl
import time
from functools import partial
from typing import Any, Callable
from urllib.parse import urlsplit

from .sse import Response

clock = time.perf_counter
# A larger buffer is mapped and unmapped by each call, which takes six times as long.
_READ = 1 << 16
_CONNECT_SECONDS = 3.0
Handler = Callable[[int, float], None]


class Loop:
    """Calls handlers of ready sockets, and timers; nothing else runs in its process."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def watch(self, number: int, events: int, handler: Handler) -> None:
        """Call ``handler(events, time)`` when a file descriptor has one of ``events``."""
        known = number in self._handlers
        self._handlers[number] = handler
        (self._epoll.modify if known else self._epoll.register)(number, events)

    def forget(self, number: int) -> None:
        """Watch a file descriptor no more; call it before closing."""
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call ``call()`` once, at ``when`` or as soon after as can be."""
        heapq.heappush(self._timers, (when, next(self._order), call))

    def run(self, finished: Callable[[], bool]) -> None:
        """Run until ``finished()``; without timers and sockets too, as nothing could come."""
        while not finished() and (self._timers or self._handlers):
            for number, events, now in self._ready():
                handler = self._handlers.get(number)
                if handler is not None:
                    handler(events, now)
            now = clock()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def _ready(self) -> list[tuple[int, int, float]]:
        wait = -1.0 if not self._timers else max(0.0, self._timers[0][0] - clock())
        if 0.0 < wait < 0.002:
            # epoll waits whole milliseconds, which an arrival's time would show.
            select.select([self._epoll], [], [], wait)
            wait = 0.0
        elif wait > 0.002:
            wait -= 0.001
        events = self._epoll.poll(wait)
        now = clock()
        return [(number, mask, now) for number, mask in events]

    def close(self) -> None:
        """Give up what the loop itself holds."""
        self._epoll.close()


class Server:
    """Where requests go: a base URL, resolved once, and the connections to it that are idle."""

    def __init__(self, loop: Loop, url: str) -> None:
        """Raise ValueError if ``url`` is none, OSError if its name is not known."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no http(s) URL")
        self.loop = loop
        self.name = parts.hostname
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = parts.path.rstrip("/")
        self.path = path[: -len("/v1")] if path.endswith("/v1") else path
        self.host = parts.netloc.rpartition("@")[2]
        self.context = ssl.create_default_context() if parts.scheme == "https" else None
        addresses = socket.getaddrinfo(self.name, port, type=socket.SOCK_STREAM)
        self.family, self.address = _reachable([(entry[0], entry[4]) for entry in addresses])
        self.idle: list[Connection] = []

    def request(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Return the bytes of a request; a POST if it has a body."""
        lines = [f"{'GET' if body is None else 'POST'} {self.path}{path} HTTP/1.1"]
        lines.append(f"Host: {self.host}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if not all(map(str.isprintable, lines)):
            raise ValueError("a header cannot have such a character")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join((*lines, "", "")).encode() + (body or b"")

    def send(
        self, request: bytes, response: Response, done: Callable[[Response], None]
    ) -> Connection:
        """Send a request; ``done(response)`` is called once it is whole or has an ``error``."""
        connection = self.idle.pop() if self.idle else Connection(self)
        connection.send(request, response, done)
        return connection

    def ask(
        self,
        path: str,
        document: Any = None,
        headers: dict[str, str] | None = None,
        seconds: float = 60.0,
    ) -> Response:
        """Send one request and wait for its answer; for what is requested beside the load."""
        body = None if document is None else json.dumps(document).encode()
        response, ended = Response(), list[Response]()
        connection = self.send(self.request(path, body, headers), response, ended.append)
        give_up = partial(connection.abort, response, f"no answer in {seconds:g} s")
        self.loop.at(clock() + seconds, give_up)
        self.loop.run(partial(bool, ended))
        return response

    def close(self) -> None:
        """Close the idle connections."""
        while self.idle:
            self.idle.pop().close()


def _reachable(addresses: list[tuple[socket.AddressFamily, Any]]) -> tuple[Any, Any]:
    """Return the first address that takes a connection, else the last: localhost may be ::1."""
    for family, address in addresses[:-1]:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.settimeout(_CONNECT_SECONDS)
            try:
                trial.connect(address)
            except OSError:
                continue
            return family, address
    return addresses[-1]


class Connection:
    """One connection with at most one request on it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = server.loop
        self._socket: Any = None
        self._number = -1
        self._out = memoryview(b"")
        self._request = b""
        self._response: Response | None = None
        self._done: Callable[[Response], None] | None = None
        self._used = False

    def send(self, request: bytes, response: Response, done: Callable[[Response], None]) -> None:
        """Send a request, over a new connection if there is none yet."""
        self._request, self._response, self._done = request, response, done
        self._out = memoryview(request)
        if self._socket is None:
            self._connect()
        else:
            self._write()

    def abort(self, response: Response, why: str) -> None:
        """Give up ``response`` if it is still what this connection waits for."""
        if response is self._response:
            self._end(why)

    def close(self) -> None:
        """Close it, without a word to anyone."""
        if self._socket is not None:
            self._loop.forget(self._number)
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        server = self._server
        self._used = False
        plain = socket.socket(server.family, socket.SOCK_STREAM)
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = plain.connect_ex(server.address)
        self._socket, self._number = plain, plain.fileno()
        if code not in (0, errno.EINPROGRESS):
            self._end(f"no connection: {errno.errorcode.get(code, code)}")
            return
        self._loop.watch(self._number, select.EPOLLOUT, self._connected)

    def _connected(self, events: int, now: float) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(f"no connection: {errno.errorcode.get(code, code)}")
        elif self._server.context is None:
            self._write()
        else:
            self._loop.forget(self._number)
            self._socket = self._server.context.wrap_socket(
                self._socket, server_hostname=self._server.name, do_handshake_on_connect=False
            )
            self._shake(0, now)

    def _shake(self, events: int, now: float) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.watch(self._number, select.EPOLLIN, self._shake)
        except ssl.SSLWantWriteError:
            self._loop.watch(self._number, select.EPOLLOUT, self._shake)
        except OSError as error:
            self._end(f"no TLS: {error}")
        else:
            self._write()

    def _write(self, events: int = 0, now: float = 0.0) -> None:
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            # A server may refuse before it has read all: so answers are awaited too.
            self._loop.watch(self._number, select.EPOLLOUT | select.EPOLLIN, self._both)
        except OSError as error:
            self._broken(f"sending broke: {error.strerror or error}")
        else:
            self._loop.watch(self._number, select.EPOLLIN, self._read)

    def _both(self, events: int, now: float) -> None:
        if events & ~select.EPOLLOUT:
            self._read(events, now)
        elif self._response is not None:
            self._write()

    def _read(self, events: int, now: float) -> None:
        response = self._response
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(f"the connection broke: {error.strerror or error}")
            return
        if response is None:
            # Idle: closed by the server, or it says what nobody requested.
            self._drop()
        elif not data:
            self._broken("")
        else:
            response.feed(data, now)
            if response.done:
                self._end("")
            elif self._server.context is not None:
                self._pending(now)

    def _pending(self, now: float) -> None:
        # What TLS has decrypted already makes no socket ready.
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._read(0, now)

    def _drop(self) -> None:
        if self in self._server.idle:
            self._server.idle.remove(self)
        self.close()

    def _broken(self, why: str) -> None:
        """End the response; a kept connection that closed just then is no fault of the server."""
        response = self._response
        if response is None:
            self._drop()
        elif self._used and not response.started:
            self.close()
            self._out = memoryview(self._request)
            self._connect()
        else:
            self._end(why, broken=True)

    def _end(self, why: str, broken: bool = False) -> None:
        response, done = self._response, self._done
        if response is None or done is None:
            return
        self._response = self._done = None
        if why or broken:
            response.closed(why)
        if response.reusable and not self._out:
            self._used = True
            self._server.idle.append(self)
        else:
            self.close()
        done(response)
