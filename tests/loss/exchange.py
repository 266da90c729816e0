# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One completion over HTTP/1.1, and what became of it, told strictly.

A request is ``ok`` when its whole answer arrived, ``refused`` with 429 or 503, ``error`` with any
other status or an error event in its stream, both told in OpenAI's JSON. An answer is ``cut`` when
it is broken off where HTTP shows that (no last chunk, too short): once it has begun nobody can send
another status. Everything else is ``lost``: no answer, silence, an error page.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["ok", "refused", "error", "cut", "lost"]
KINDS: tuple[Kind, ...] = ("ok", "refused", "error", "cut", "lost")

# A router's header tells it of any engine; the double's answers begin with it.
REPLICA_HEADER = "x-apiary-replica"
REPLICA_TEXT = re.compile(r"port (\d+) of (\S+) answers")
# Pause between attempts to connect, as long as nothing was sent.
RECONNECT_SECONDS = 0.1

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LostError(Exception):
    """The answer did not arrive in a way that a client could use."""


@dataclass(frozen=True)
class Ask:
    """One request: its body, how it is to be answered, and how long it may take.

    ``connect_seconds`` is for finding a router that accepts: until then nothing was sent.
    """

    number: int
    body: dict[str, Any]
    key: str | None = None
    key_header: str = "X-Session-Id"
    path: str = "/v1/completions"
    timeout_seconds: float = 30.0
    connect_seconds: float = 5.0
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    def encoded(self, target: tuple[str, int], keep_alive: bool) -> bytes:
        """Return the request's bytes."""
        payload = json.dumps(self.body).encode()
        headers = {
            "Host": f"{target[0]}:{target[1]}",
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
            "Connection": "keep-alive" if keep_alive else "close",
            **dict(self.headers),
        }
        if self.key is not None:
            headers[self.key_header] = self.key
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {it}" for name, it in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + payload


@dataclass(frozen=True)
class Outcome:
    """What became of one request; times are seconds since the load began."""

    number: int
    kind: Kind
    reason: str
    started: float
    ended: float
    first_token: float | None = None
    status: int | None = None
    stream: bool = False
    key: str | None = None
    replica: str | None = None
    router: str = ""
    connects: int = 1

    def in_flight(self, moment: float) -> bool:
        """Say whether the request was under way then."""
        return self.started <= moment < self.ended


@dataclass
class Seen:
    """What has arrived so far of one answer."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    first_token: float | None = None
    finished: bool = False
    tokens: int | None = None
    error: str | None = None
    done: bool = False
    complete: bool = False
    broken_off: bool = False

    @property
    def replica(self) -> str | None:
        """Return the router's name of who answered, or ``HOST:PORT`` as the double says itself."""
        if REPLICA_HEADER in self.headers:
            return self.headers[REPLICA_HEADER]
        named = REPLICA_TEXT.search(self.text)
        return f"{named[2]}:{named[1]}" if named else None

    def event(self, data: str) -> None:
        """Take in one event of a stream."""
        if data == "[DONE]":
            self.done = True
            return
        self.take(json.loads(data))

    def take(self, document: Any) -> None:
        """Take in an answer or a part of one."""
        if not isinstance(document, dict):
            raise LostError("an answer that is no object")
        if document.get("error"):
            self.error = _message(document["error"])
        for choice in document.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or choice
            self.text += part.get("text") or part.get("content") or ""
            self.finished = self.finished or choice.get("finish_reason") is not None
        if document.get("usage"):
            self.tokens = document["usage"].get("completion_tokens")


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


class Pool:
    """Connections that routers keep open, by router; a client takes one up again if it can."""

    def __init__(self) -> None:
        self.idle: dict[tuple[str, int], list[Connection]] = {}

    def take(self, target: tuple[str, int]) -> Connection | None:
        """Return an idle connection that its router has not closed."""
        held = self.idle.get(target, [])
        while held:
            reader, writer = held.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    def put(self, target: tuple[str, int], connection: Connection) -> None:
        self.idle.setdefault(target, []).append(connection)

    def close(self) -> None:
        for held in self.idle.values():
            for _, writer in held:
                writer.close()
        self.idle.clear()


async def exchange(
    ask: Ask, targets: list[tuple[str, int]], epoch: float, pool: Pool | None = None
) -> Outcome:
    """Send one request and tell what became of it; with a pool its connection is kept open.

    ``targets`` are tried in order, as a client does with the addresses of a name.
    """
    started = time.monotonic()
    seen, connects, target, problem = Seen(), 0, targets[0], ""
    try:
        async with asyncio.timeout(ask.timeout_seconds):
            connection, target, connects = await _connect(ask, targets, pool)
            await _converse(ask, connection, target, pool, seen)
    except LostError as failure:
        problem = str(failure)
    except TimeoutError:
        problem = f"no end after {ask.timeout_seconds:g} s"
    except (ConnectionError, asyncio.IncompleteReadError) as failure:
        seen.broken_off = True
        cause = "reset" if isinstance(failure, ConnectionError) else "closed"
        problem = f"{cause} {_where(seen)}"
    except (ValueError, LookupError, AttributeError) as failure:
        problem = f"not HTTP, JSON or events: {failure}"
    kind, reason = judge(ask, seen, problem)
    return Outcome(
        number=ask.number,
        kind=kind,
        reason=reason,
        started=started - epoch,
        ended=time.monotonic() - epoch,
        first_token=None if seen.first_token is None else seen.first_token - started,
        status=seen.status,
        stream=ask.stream,
        key=ask.key,
        replica=seen.replica,
        router=f"{target[0]}:{target[1]}",
        connects=connects,
    )


def judge(ask: Ask, seen: Seen, problem: str) -> tuple[Kind, str]:
    """Return the kind of an answer, and why it is not ``ok``."""
    if seen.error is not None and (not problem or ask.stream):
        # A stream that has told its error may end as it likes.
        refused = seen.status in (429, 503)
        return "refused" if refused else "error", f"{seen.status}: {seen.error}"
    if problem:
        cut = seen.broken_off and seen.status == 200 and not seen.finished
        return "cut" if cut else "lost", problem
    if seen.status != 200:
        return "lost", f"status {seen.status} without a JSON error"
    if not seen.finished or (ask.stream and not seen.done):
        return "lost", "an answer without its end"
    wanted = ask.body.get("max_tokens")
    if ask.body.get("ignore_eos") and seen.tokens != wanted:
        return "lost", f"{seen.tokens} of {wanted} tokens"
    return "ok", ""


def _where(seen: Seen) -> str:
    if seen.status is None:
        return "before an answer"
    return "in the middle of an answer" if not seen.done else "at the end of an answer"


async def _connect(
    ask: Ask, targets: list[tuple[str, int]], pool: Pool | None
) -> tuple[Connection, tuple[str, int], int]:
    """Return a connection to the first router that accepts one, and the number of attempts."""
    deadline, attempts = time.monotonic() + ask.connect_seconds, 0
    while True:
        for target in targets:
            held = pool.take(target) if pool else None
            if held:
                return held, target, max(attempts, 1)
            attempts += 1
            try:
                async with asyncio.timeout(min(1.0, ask.connect_seconds)):
                    return await asyncio.open_connection(*target), target, attempts
            except (OSError, TimeoutError):
                continue
        if time.monotonic() > deadline:
            raise LostError(f"no router accepted a connection in {ask.connect_seconds:g} s")
        await asyncio.sleep(RECONNECT_SECONDS)


async def _converse(
    ask: Ask, connection: Connection, target: tuple[str, int], pool: Pool | None, seen: Seen
) -> None:
    """Send the request and read the answer into ``seen``; keep the connection or close it."""
    reader, writer = connection
    try:
        writer.write(ask.encoded(target, keep_alive=pool is not None))
        await writer.drain()
        await _read(reader, ask, seen)
        if pool and seen.complete and seen.headers.get("connection", "").lower() != "close":
            pool.put(target, connection)
            writer = None  # type: ignore[assignment]  # its finally is all that reads it
    finally:
        if writer is not None:
            writer.transport.abort() if not seen.complete else writer.close()


async def _read(reader: asyncio.StreamReader, ask: Ask, seen: Seen) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    seen.status = int(head[0].split()[1])
    fields = (line.split(":", 1) for line in head[1:] if ":" in line)
    seen.headers = {name.strip().lower(): value.strip() for name, value in fields}
    if seen.headers.get("content-type", "").startswith("text/event-stream"):
        await _read_events(reader, seen)
    else:
        parts = [part async for part in _body(reader, seen)]
        if seen.headers.get("content-type", "").startswith("application/json"):
            seen.take(json.loads(b"".join(parts)))
            seen.first_token = time.monotonic()
            seen.done = True


async def _read_events(reader: asyncio.StreamReader, seen: Seen) -> None:
    rest = b""
    async for part in _body(reader, seen):
        *events, rest = (rest + part).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                seen.event(event[6:].decode())
                if seen.first_token is None and seen.text:
                    seen.first_token = time.monotonic()


async def _body(reader: asyncio.StreamReader, seen: Seen) -> AsyncIterator[bytes]:
    """Yield the body as it comes; end only where HTTP says that it is whole."""
    if seen.headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    elif "content-length" in seen.headers:
        yield await reader.readexactly(int(seen.headers["content-length"]))
    else:
        raise LostError("an answer whose end nobody could tell")
    seen.complete = True
