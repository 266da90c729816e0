# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many open streams through one router: its memory for each, and what it adds to a token's way.

    python benchmarks/streams.py [--json] [--streams 9000] [--tokens 1000] [--seconds 20]

Engines are one process with eight ports, clients another with eight addresses. Each stream is a
chat with `stream: true` that stays open; tokens go to streams by chance and carry the time when
they were sent, on the clock that all processes share. The same is measured with nothing between. A
router has two sockets for each stream, so that `ulimit -Hn` bounds how many can be tried.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import resource
import selectors
import socket
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    RouterSettings,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.router.haproxy import HAProxy, pool_of

PORTS = 8
# Opened at a time: as many as wait for the router's answer.
AHEAD = 64
BODY = json.dumps({"model": "org/model", "stream": True, "messages": [{"role": "user"}]})
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: 0\n\n\r\n"
)


@dataclass(frozen=True)
class Measured:
    """One run: milliseconds from when a token was sent to when its client had it."""

    by: str
    streams: int
    opened_a_second: float
    tokens: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    memory_mib: float
    kib_a_stream: float


def engines(pipe: Connection, tokens: float) -> None:
    """Serve streams; send tokens by chance from "begin" to "end"."""
    listeners = []
    for _port in range(PORTS):
        one = socket.create_server(("127.0.0.1", 0), backlog=4096)
        one.setblocking(False)
        listeners.append(one)
    pipe.send([one.getsockname()[1] for one in listeners])
    waiting = selectors.DefaultSelector()
    for one in listeners:
        waiting.register(one, selectors.EVENT_READ, one)
    streams: list[socket.socket] = []
    sending, draw, due = False, random.Random(1), 0.0  # noqa: S311 - no secret
    while True:
        for key, _events in waiting.select(0.001):
            if key.data in listeners:
                stream, _address = key.data.accept()
                waiting.register(stream, selectors.EVENT_READ, stream)
                continue
            stream = key.data
            waiting.unregister(stream)
            request = stream.recv(65536)
            if request.startswith(b"POST"):
                stream.setblocking(False)
                stream.send(HEAD)
                streams.append(stream)
            else:  # a health check
                stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                stream.close()
        if pipe.poll():
            if pipe.recv() == "end":
                pipe.recv()  # its streams stay open until then
                return
            sending, due = True, time.monotonic()
        while sending and due < time.monotonic():
            text = b"data: %020d\n\n" % time.monotonic_ns()
            draw.choice(streams).send(b"%x\r\n%s\r\n" % (len(text), text))
            due += 1 / tokens


def clients(pipe: Connection, ports: list[int], count: int) -> None:
    """Open streams, report it, and then the way of each token until the end."""
    waiting, left, opened, flying = selectors.DefaultSelector(), count, 0, 0
    times: list[int] = []
    began = time.monotonic()
    while opened < count:
        while left and flying < AHEAD:
            one = socket.create_connection(
                ("127.0.0.1", ports[left % len(ports)]),
                source_address=(f"127.0.0.{2 + left % PORTS}", 0),
            )
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Session-Id: s{left}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
            one.sendall((head + BODY).encode())
            one.setblocking(False)
            waiting.register(one, selectors.EVENT_READ, one)
            left, flying = left - 1, flying + 1
        for key, _events in waiting.select(1):
            text = key.data.recv(65536)
            if not text.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"stream {opened}: {text[:200]!r}")
            opened, flying = opened + 1, flying - 1
    pipe.send(time.monotonic() - began)
    while not pipe.poll():
        for key, _events in waiting.select(0.01):
            text = key.data.recv(65536)
            now = time.monotonic_ns()
            times += [
                now - int(part[:20]) for part in text.split(b"data: ")[1:] if part[0:2] != b"0\n"
            ]
    pipe.send(times)


def measure(by: str, ports: list[int], engine: Connection, count: int, seconds: float) -> Measured:
    """Open streams at ports, have tokens sent for a while, and return what clients saw."""
    here, there = multiprocessing.Pipe()
    client = multiprocessing.Process(target=clients, args=(there, ports, count), daemon=True)
    client.start()
    took = here.recv()
    engine.send("begin")
    time.sleep(seconds)  # it is the measurement
    engine.send("end")
    here.send("end")
    times = sorted(here.recv())
    client.join()
    engine.send("over")
    at = [times[min(len(times) - 1, int(len(times) * part))] / 1e6 for part in (0.5, 0.99, 1)]
    return Measured(by, count, count / took, len(times), *at, 0.0, 0.0)


def resident(processes: set[int]) -> float:
    """Return the most memory that processes had, in MiB."""
    kib = 0
    for process in processes:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return kib / 1024


def routed(count: int, tokens: float, seconds: float) -> Measured:
    """Measure with our router as the role configures it."""
    settings = RouterSettings(queueing=Queueing(concurrency=count))
    with tempfile.TemporaryDirectory(prefix="streams-") as directory:
        here, there = multiprocessing.Pipe()
        engine = multiprocessing.Process(target=engines, args=(there, tokens), daemon=True)
        engine.start()
        router = HAProxy(Path(directory), [pool_of(here.recv(), count)], settings)
        router.settings = type(settings)(**{**vars(router.settings), "connections": count + 100})
        router.write()

        async def run() -> Measured:
            async with router:
                before = resident(router.workers())
                found = await asyncio.to_thread(
                    measure, "Apiary", [router.port], here, count, seconds
                )
                after = resident(router.workers())
            used = 1024 * (after - before) / count
            return Measured(**{**vars(found), "memory_mib": after, "kib_a_stream": used})

        result = asyncio.run(run())
        engine.kill()
        return result


def direct(count: int, tokens: float, seconds: float) -> Measured:
    """Measure with nothing between."""
    here, there = multiprocessing.Pipe()
    engine = multiprocessing.Process(target=engines, args=(there, tokens), daemon=True)
    engine.start()
    result = measure("nothing between", here.recv(), here, count, seconds)
    engine.kill()
    return result


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--streams", default=9000, show_default=True)
@click.option(
    "--tokens", default=1000.0, show_default=True, help="Tokens a second, of all streams."
)
@click.option("--seconds", default=20.0, show_default=True, help="How long tokens are sent.")
def main(as_json: bool, streams: int, tokens: float, seconds: float) -> None:
    """Measure a router's memory and delay with many open streams."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 2 * streams + 1500 > hard:
        raise click.ClickException(f"{streams} streams take {2 * streams + 1500} files, of {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = [direct(streams, tokens, seconds), routed(streams, tokens, seconds)]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        print(
            ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in asdict(row).items()
            )
        )


if __name__ == "__main__":
    main()
