# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the load counts as lost; a server that says exactly what it is told to stands in."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from loss.exchange import Ask, Outcome, Pool, exchange
from loss.load import Load, Report, Running, main, under

Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BODY = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
TEXT = "Replica on port 8001 of gpu-002 answers from GPUs"


def page(status: int, payload: str, kind: str = "application/json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(payload)}\r\n"
    return (head + extra + "\r\n" + payload).encode()


def answer(tokens: int = 2) -> str:
    choice = {"text": TEXT, "finish_reason": "length"}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}})


def events(*parts: object, end: bool = True) -> bytes:
    """A chunked stream of events; without its end it is truncated."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for part in parts:
        text = part if isinstance(part, str) else json.dumps(part)
        data = f"data: {text}\n\n".encode()
        head += b"%x\r\n%b\r\n" % (len(data), data)
    return head + (b"0\r\n\r\n" if end else b"")


TOKENS = (
    {"choices": [{"text": TEXT, "finish_reason": None}]},
    {"choices": [{"text": " b", "finish_reason": "length"}]},
)
USAGE = {"choices": [], "usage": {"completion_tokens": 2}}
ERROR = {"error": {"message": "EngineCore encountered an issue", "code": 500}}


def says(payload: bytes, *, reset: bool = False) -> Reply:
    """A server that answers every request of a connection with these bytes, then ends it."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(payload)
        await writer.drain()
        if reset:
            writer.transport.abort()
        else:
            writer.close()

    return reply


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def outcome(reply: Reply, *, stream: bool = False, **options: float) -> Outcome:
    """What one request to such a server is counted as."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reply(reader, writer)
        except ConnectionError:
            writer.close()
        served.set()

    async def run() -> Outcome:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            target = server.sockets[0].getsockname()[:2]
            ask = Ask(0, {**BODY, "stream": stream}, **{"timeout_seconds": 5, **options})
            made = await exchange(ask, [target], time.monotonic())
            await served.wait()
            await asyncio.sleep(0)
            return made

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("stream", "payload", "kind"),
    [
        (False, page(200, answer()), "ok"),
        (True, events(*TOKENS, USAGE, "[DONE]"), "ok"),
        (False, page(500, json.dumps(ERROR)), "error"),
        (False, page(502, json.dumps({"error": {"message": "no replica", "code": 502}})), "error"),
        (False, page(503, json.dumps(ERROR)), "refused"),
        (True, page(429, json.dumps(ERROR)), "refused"),
        (True, events(TOKENS[0], ERROR, "[DONE]"), "error"),
        (True, events(TOKENS[0], ERROR, end=False), "error"),
    ],
)
def test_whole_answers_and_clean_errors_are_not_lost(
    stream: bool, payload: bytes, kind: str
) -> None:
    assert outcome(says(payload), stream=stream).kind == kind


@pytest.mark.parametrize(
    ("stream", "payload", "reason"),
    [
        (True, events(*TOKENS, USAGE, end=False), "closed in the middle of an answer"),
        (True, events(*TOKENS, USAGE, "[DONE]", end=False), "closed at the end of an answer"),
        (True, events(*TOKENS, USAGE), "an answer without its end"),
        (True, events(TOKENS[0], "[DONE]"), "an answer without its end"),
        (True, events(*TOKENS, "[DONE]"), "None of 2 tokens"),
        (False, page(200, answer(tokens=1)), "1 of 2 tokens"),
        (False, b"", "closed before an answer"),
        (False, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", "nobody could"),
        (False, page(503, "<html>", "text/html"), "status 503 without a JSON error"),
        (False, page(502, "{}"), "status 502 without a JSON error"),
        (False, page(200, "{"), "not HTTP, JSON or events"),
        (False, page(200, "[]"), "no object"),
        (False, b"nonsense\r\n\r\n", "not HTTP"),
    ],
)
def test_what_a_client_cannot_use_is_lost(stream: bool, payload: bytes, reason: str) -> None:
    found = outcome(says(payload), stream=stream)
    assert (found.kind, reason in found.reason) == ("lost", True), found


@pytest.mark.parametrize("parts", [(), TOKENS[:1]])
@pytest.mark.parametrize("reset", [False, True])
def test_a_stream_broken_off_is_told_apart(parts: tuple[object, ...], reset: bool) -> None:
    found = outcome(says(events(*parts, end=False), reset=reset), stream=True)
    assert (found.kind, "the middle of an answer" in found.reason) == ("cut", True)


def test_an_answer_that_is_too_short_is_cut() -> None:
    found = outcome(says(page(200, answer())[:-1]))
    assert (found.kind, found.reason) == ("cut", "closed in the middle of an answer"), found


def test_an_error_that_is_too_short_is_lost() -> None:
    assert outcome(says(page(500, json.dumps(ERROR))[:-1])).kind == "lost"


def test_a_reset_before_the_answer_is_lost() -> None:
    assert outcome(says(b"", reset=True)).kind == "lost"


def test_silence_is_lost_when_its_time_is_over() -> None:
    found = outcome(silence, timeout_seconds=0.2)
    assert (found.kind, found.reason) == ("lost", "no end after 0.2 s")


def test_the_replica_is_told_by_the_answer_or_by_the_router() -> None:
    assert outcome(says(page(200, answer()))).replica == "gpu-002:8001"
    anonymous = answer().replace(TEXT, "random words")
    named = page(200, anonymous, extra="X-Apiary-Replica: gpu-001-0\r\n")
    assert outcome(says(named)).replica == "gpu-001-0"


def test_a_router_that_refuses_connections_costs_another_attempt_and_no_request() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = closed.getsockname()

        async def run() -> tuple[Outcome, Outcome]:
            server = await asyncio.start_server(says(page(200, answer())), "127.0.0.1", 0)
            async with server:
                alive = server.sockets[0].getsockname()[:2]
                ask = Ask(0, BODY, connect_seconds=0.3)
                both = await exchange(ask, [dead, alive], time.monotonic())
                return both, await exchange(ask, [dead], time.monotonic())

        both, alone = asyncio.run(run())
    assert (both.kind, both.connects) == ("ok", 2)
    assert (alone.kind, "no router accepted" in alone.reason) == ("lost", True)


def test_a_connection_is_used_again_unless_the_router_closed_it() -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        for extra in ("", "Connection: close\r\n"):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(page(200, answer(), extra=extra))
            await writer.drain()
        writer.close()

    async def run() -> list[str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            target, pool = server.sockets[0].getsockname()[:2], Pool()
            made = [await exchange(Ask(n, BODY), [target], 0.0, pool) for n in range(4)]
            pool.close()
            return [one.kind for one in made]

    assert asyncio.run(run()) == ["ok"] * 4
    assert opened == 2


def test_a_load_is_what_was_asked_for() -> None:
    load = Load((("127.0.0.1", 1),), "m", requests=1000, streamed=0.25, keyed=0.75, kept=0.5)
    asks = list(load.asks())
    assert len(asks) == 1000
    assert sum(ask.stream for ask, _ in asks) == pytest.approx(250, abs=50)
    assert sum(ask.key is not None for ask, _ in asks) == pytest.approx(750, abs=50)
    assert sum(kept for _, kept in asks) == pytest.approx(500, abs=50)
    assert asks == list(load.asks())


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 10**6},
        {"seconds": 1e5},
        {"targets": (("203.0.114.7", 80),)},
    ],
)
def test_an_unbounded_load_or_one_on_strangers_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at most|private"):
        Load(**{"targets": (("127.0.0.1", 1),), "model": "m", **wrong})  # type: ignore[arg-type]  # wrong on purpose


@pytest.fixture
def broken_every_third():
    """A server in a thread that truncates every third answer, and its address."""
    started, ended = threading.Event(), threading.Event()
    place: list[tuple[str, int]] = []
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        number = asked  # others come while this one is read
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        stream = json.loads(await reader.readexactly(length))["stream"]
        whole = events(*TOKENS, USAGE, "[DONE]") if stream else page(200, answer())
        writer.write(whole if number % 3 else whole[:-3])
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            place.append(server.sockets[0].getsockname()[:2])
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(60)
    yield place[0]
    ended.set()
    thread.join()


def test_a_load_counts_what_it_lost(broken_every_third, capsys) -> None:
    host, port = broken_every_third
    # The server ends every connection: one that is kept may be lost before its end is seen.
    options = ["--model", "m", "--rate", "300", "--requests", "90", "--tokens", "2", "--kept", "0"]
    assert main([f"http://{host}:{port}", "--json", *options]) == 1
    told = json.loads(capsys.readouterr().out)
    # A stream had told its end already; another answer is too short.
    assert told["counts"]["ok"] == 60
    assert told["counts"]["cut"] + told["counts"]["lost"] == 30
    assert told["replicas"] == {"gpu-002:8001": 60}
    assert sum(told["reasons"].values()) == 30


def test_a_load_stops_with_its_block_and_awaits_what_is_under_way(broken_every_third) -> None:
    load = Load((broken_every_third,), "m", rate=100, tokens=2)
    with under(load, warm=0.1) as running:
        seen = len(running.report().outcomes)
    report = running.report()
    assert seen > 0
    numbers = [one.number for one in report.outcomes]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) < load.requests


def test_no_more_are_under_way_than_allowed() -> None:
    load = Load((("127.0.0.1", 1),), "m", rate=1000, requests=5, in_flight=2, timeout_seconds=0.05)
    running = Running(load)
    running.run()
    report = running.report()
    assert report.counts()["lost"] == 5
    assert running.held_back >= 1
    assert max(len(report.in_flight(one.started)) for one in report.outcomes) <= 2


def test_the_table_tells_kinds_and_reasons() -> None:
    report = Report(
        (
            Outcome(0, "ok", "", 0.0, 1.0, stream=True),
            Outcome(1, "lost", "reset before an answer", 0.0, 1.0),
        )
    )
    assert report.table().splitlines() == [
        "           requests  ok  refused  error  cut  lost",
        "streaming         1   1        0      0    0     0",
        "      not         1   0        0      0    0     1",
        "      all         2   1        0      0    0     1",
        "1 × lost: reset before an answer",
    ]
