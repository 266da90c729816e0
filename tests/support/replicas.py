# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas that are no engines, and a client: HTTP on loopback in one event loop.

A request says what shall come of it: a JSON body with `seconds` (of work), `chunks` (streamed in
that time), `status`, `die` (the connection is lost in the middle), or `cut` (a stream that ends
before its first token).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections import Counter
from dataclasses import dataclass, field


class Replica:
    """One no-op engine on a loopback port; it counts what reaches it."""

    def __init__(self, name: str, port: int = 0, address: str = "127.0.0.1") -> None:
        self.name, self.port, self.address = name, port, address
        self.tls: ssl.SSLContext | None = None
        self.healthy = True
        # As an engine that drains: new requests get 500, /health 200.
        self.refusing = False
        self.running = self.peak = self.finished = self.aborted = 0
        self.seen: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.body = b""  # of the last request
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> Replica:
        self._server = await asyncio.start_server(
            self._connection, self.address, self.port, backlog=1024, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Listen no more; what runs is finished."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def kill(self) -> None:
        """Be gone at once, as a process that was killed: every connection is reset."""
        await self.stop()
        for writer in list(self._connections):
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            line, headers = await read_head(reader)
        except asyncio.IncompleteReadError:
            return False
        if headers.get("transfer-encoding") == "chunked":
            body = await read_chunks(reader)
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        if line.split()[1] == "/health":
            writer.write(_reply(200 if self.healthy else 503, b"", self.name, close=True))
            await writer.drain()
            return False
        self.seen[headers.get("x-request-id", "")] += 1
        self.headers.append(headers)
        self.body = body
        # A form says nothing of what shall come of it.
        asked = {} if body.startswith(b"--") else json.loads(body or b"{}")
        asked = {"status": 500} if self.refusing else asked
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self._answer(asked, reader, writer)
        finally:
            self.running -= 1
        return False

    async def _answer(
        self, asked: dict, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seconds, chunks = asked.get("seconds", 0), asked.get("chunks", 0)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            if asked.get("die"):
                writer.transport.abort()
                return
            if chunks:
                writer.write(
                    f"HTTP/1.1 200 OK\r\nX-Replica: {self.name}\r\nConnection: close\r\n"
                    "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                )
            if asked.get("cut"):
                writer.close()
                return
            for number in range(max(chunks, 1)):
                if seconds:
                    await asyncio.wait([gone], timeout=seconds / max(chunks, 1))
                if gone.done():
                    self.aborted += 1
                    return
                if chunks:
                    event = f"data: {number}\n\n".encode()
                    writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                    await writer.drain()
            if chunks:
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(_reply(asked.get("status", 200), b"{}", self.name, close=True))
            await writer.drain()
            self.finished += 1
        finally:
            gone.cancel()


def _reply(status: int, body: bytes, name: str, close: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status} .\r\nX-Replica: {name}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n" + ("Connection: close\r\n" if close else "") + "\r\n"
    )
    return head.encode() + body


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Return the first line and the headers, names in small letters."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return first, {name.lower(): value.strip() for name, _colon, value in pairs}


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Return a body that comes in chunks."""
    body = b""
    while size := int((await reader.readuntil(b"\r\n")), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


@dataclass
class Answer:
    """What a client got: status 0 where the connection ended before the answer did."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    started: float = 0.0
    first_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def replica(self) -> str:
        return self.headers.get("x-replica", "")

    @property
    def error(self) -> str:
        """Return the code of an error in the shape that OpenAI's clients read."""
        return json.loads(self.body)["error"]["code"]


class Client:
    """One connection to a router, kept for several requests and made anew when it was closed."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.port, self.source = port, source
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(
        self,
        asked: dict | bytes | None = None,
        headers: dict[str, str] | None = None,
        path: str = "/v1/completions",
    ) -> Answer:
        """Send one request and read its whole answer."""
        start = time.monotonic()
        answer = Answer(started=start)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.send(asked, headers, path)
            await self.receive(answer, start)
        answer.seconds = time.monotonic() - start
        if answer.status == 0 or answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def send(
        self,
        asked: dict | bytes | None = None,
        headers: dict[str, str] | None = None,
        path: str = "/v1/completions",
    ) -> None:
        """Send one request, and leave its answer."""
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self.port, local_addr=(self.source, 0)
            )
        body = asked if isinstance(asked, bytes) else json.dumps(asked or {}).encode()
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def receive(self, answer: Answer, start: float) -> None:
        assert self._reader is not None
        line, headers = await read_head(self._reader)
        if headers.get("transfer-encoding") == "chunked":
            # A line that is missing is an answer that was cut.
            while size := int((await self._reader.readuntil(b"\r\n")), 16):
                answer.body += (await self._reader.readexactly(size + 2))[:-2]
                answer.first_seconds = answer.first_seconds or time.monotonic() - start
            await self._reader.readline()
        else:
            answer.body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        # Set last: an answer that was cut has no status.
        answer.headers, answer.status = headers, int(line.split()[1])

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
