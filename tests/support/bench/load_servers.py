# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Servers on loopback for the load generator: our mock, and one that says what it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.apiary.instinct.plugins.module_utils.load.mock import Mock


@contextmanager
def mock(ttft: float = 0.0, itl: float = 0.0) -> Iterator[str]:
    """Give the URL of a mock that runs in a thread."""
    server = Mock("127.0.0.1", 0, ttft, itl, "m")
    reading, writing = socket.socketpair()
    server.watch(reading.fileno())
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        writing.close()
        thread.join()
        reading.close()


@dataclass
class Scripted:
    """A server whose answer to the n-th POST of generation is ``script(n)``; None: none at all.

    An answer is (bytes, whether the connection is closed behind it). ``requests`` are whole.
    """

    script: Callable[[int], tuple[bytes, bool] | None]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    def serve(self, listening: socket.socket, ended: threading.Event) -> None:
        """Accept until the listening socket is closed."""
        while True:
            try:
                connection, _address = listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection, ended), daemon=True).start()

    def _talk(self, connection: socket.socket, ended: threading.Event) -> None:
        with connection:
            while True:
                request = read_request(connection)
                if not request:
                    return
                self.requests.append(request)
                answer = self.script(len(self.requests) - 1)
                if answer is None:
                    ended.wait(10)
                    return
                connection.sendall(answer[0])
                if answer[1]:
                    return


def read_request(connection: socket.socket) -> bytes:
    """Return one request with its body; nothing if the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return b""
        data += part
    head, _blank, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted(script: Callable[[int], tuple[bytes, bool] | None]) -> Iterator[tuple[str, Scripted]]:
    """Give the URL of a server that follows a script, and what it was asked."""
    server, ended = Scripted(script), threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=partial(server.serve, listening, ended))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
    finally:
        ended.set()
        # Closing alone does not wake an accept.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def stream(*events: str, end: str = "\n", status: str = "200 OK", last: bool = True) -> bytes:
    """Return an event stream, each event a chunk of HTTP of its own."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked"
    data = f"{head}\r\n\r\n".encode()
    for event in events:
        body = f"data: {event}{end}{end}".encode()
        data += b"%x\r\n%s\r\n" % (len(body), body)
    return data + (b"0\r\n\r\n" if last else b"")


def token(text: str = " a") -> str:
    """Return a completion's chunk with one token."""
    return f'{{"choices":[{{"index":0,"text":"{text}"}}]}}'


def usage(output: int, prompt: int = 8) -> str:
    """Return the chunk that tells the usage."""
    counts = f'"prompt_tokens":{prompt},"completion_tokens":{output}'
    return f'{{"choices":[],"usage":{{{counts}}}}}'


def request(url: str, requests: int = 4, **values: Any) -> dict[str, Any]:
    """Return a request for the client: closed loop of 2, 8 and 5 tokens, unless told otherwise."""
    workload = {"name": "w", "input_tokens": 8, "output_tokens": 5, **values.pop("workload", {})}
    load = {
        **{"phase": "fixed", "workload": workload, "requests": requests, "concurrency": 2},
        **{"request_rate": None, "warmups": 0, "seed": 1, "repeat": 0, "engine_run": 0},
        **values.pop("load", {}),
    }
    return {"url": url, "model": "m", "load": load, "vocabulary": [10, 500], **values}
