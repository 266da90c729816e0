# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routers side by side before the same mock engines, up to and beyond what these can serve.

    python benchmarks/routers.py [--json] [--rates 14,18,27,54] [--seeds 1,2,3] [--routers LIST]
        [--programs DIRECTORY]

Engines compute one prompt after the other (3,000 tokens/s), keep what they have computed (200,000
tokens, the least used goes first) and send headers at once, the first token when the prompt is
done. They tell their load as vLLM does. Clients have chats of ten turns, name their session in the
headers that the routers know (not at NAME/unkeyed), retry twice, and give a chat up then. Good is
an answer whose first token came within the SLO, counted from the client's first try of that turn's
request that was served. vllm-router and smg are of their wheels: `make routers` installs what
requirements/routers.txt pins and runs all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    RouterSettings,
)
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.replicas import Answer, Client, read_chunks, read_head
from support.router.haproxy import HAProxy, free_ports, pool_of

PREFILL, POOL, DECODE = 3000, 200_000, 1.5
CARDS, CARD, USER, ANSWER = 200, 1500, 300, 150
TURNS, THINK, TRIES, SLO = 10, 6.0, 3, 2.0
CHARACTERS = 4  # of a token
SHIPPED = 256  # requests that an engine takes at once
THREADS = 8  # of our router, as on a host with many CPUs: they learn together
_PATH = "/v1/chat/completions"
# Two of smg's own, of which it takes the second.
KEYS = ("X-Session-Id", "X-SMG-Routing-Key")
MODELS = b'{"object":"list","data":[{"id":"org/model","object":"model","owned_by":"vllm"}]}'
GAUGES = (
    'vllm:num_requests_running{{model_name="org/model",engine="0"}} {running}\n'
    'vllm:num_requests_waiting{{model_name="org/model",engine="0"}} {waiting}\n'
    'vllm:kv_cache_usage_perc{{model_name="org/model",engine="0"}} {usage}\n'
)
TOKEN = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"org/model","choices":\
[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
)


def response(kind: str, text: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Content-Type: {kind}\r\n\r\n".encode() + text


class Engine:
    """A mock engine on a port of its own."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, int] = OrderedDict()
        self.used = self.prompts = self.hits = self.requests = self.waiting = self.running = 0
        self.prefill = asyncio.Lock()
        self.port = 0
        self.server: asyncio.Server | None = None

    async def start(self) -> Engine:
        self.server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def lookup(self, messages: list[dict[str, str]]) -> int:
        """Take a prompt into the cache; return how many of its tokens must be computed."""
        chain, missing, found, keys = 0, 0, True, []
        for message in messages:
            chain = hash((chain, message["content"]))
            tokens = len(message["content"]) // CHARACTERS
            found = found and chain in self.cache
            missing += 0 if found or message["role"] == "assistant" else tokens
            keys.append((chain, tokens))
            self.prompts += tokens
            self.hits += tokens if found or message["role"] == "assistant" else 0
        # An answer that is no longer there is computed again, as any text.
        for key, tokens in keys:
            self.used += tokens - self.cache.pop(key, 0)
            self.cache[key] = tokens
        while self.used > POOL:
            self.used -= self.cache.popitem(last=False)[1]
        return max(missing, 16)

    def told(self, path: str) -> bytes:
        """Return the answer to a GET: what vLLM has, and 404 for what it lacks."""
        gauges = {"running": self.running, "waiting": self.waiting, "usage": self.used / POOL}
        kind, text = {
            "/health": ("text/plain", b""),
            "/v1/models": ("application/json", MODELS),
            "/version": ("application/json", b'{"version":"0.33.0"}'),
            "/metrics": ("text/plain", GAUGES.format(**gauges).encode()),
        }.get(path, ("", b"{}"))
        return response(kind or "application/json", text, "200 OK" if kind else "404 Not Found")

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At the end of a run some are in work.
        ended = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*ended):
            line, headers = await read_head(reader)
            if headers.get("transfer-encoding") == "chunked":
                body = await read_chunks(reader)
            else:
                body = await reader.readexactly(int(headers.get("content-length", 0)))
            if line.startswith("GET"):
                writer.write(self.told(line.split()[1]))
            elif line.split()[1].endswith("/render"):
                # vllm-router has an engine make tokens of a prompt before it chooses.
                whole = "".join(one["content"] for one in json.loads(body)["messages"])
                parts = (whole[at : at + CHARACTERS] for at in range(0, len(whole), CHARACTERS))
                tokens = [zlib.crc32(part.encode()) & 0xFFFF for part in parts]
                writer.write(
                    response("application/json", b'{"request_id":"x","token_ids":%a}' % tokens)
                )
            else:
                self.requests += 1
                writer.write(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                await writer.drain()
                self.waiting += 1
                try:
                    async with self.prefill:
                        missing = self.lookup(json.loads(body)["messages"])
                        await asyncio.sleep(missing / PREFILL)
                finally:
                    self.waiting -= 1
                writer.write(b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN))
                await writer.drain()
                self.running += 1
                try:
                    await asyncio.sleep(DECODE)
                finally:
                    self.running -= 1
                writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()
        writer.close()


@dataclass
class Tally:
    """What clients saw after the warm-up."""

    first: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    begun: int = 0
    lost: int = 0
    turned_away: int = 0


@dataclass(frozen=True)
class Row:
    """One run; times in seconds, ``cpu_ms`` the router's CPU time a request."""

    router: str
    rate: float
    seed: int
    good: float
    served: float
    p50: float
    p90: float
    refused: int
    lost_percent: float
    new_refused: int
    hit: float
    uneven: float
    cpu_ms: float
    load: float


def text(draw: random.Random, tokens: int) -> str:
    return draw.randbytes(tokens * CHARACTERS // 2).hex()


async def chat(
    port: int,
    draw: random.Random,
    system: str,
    headers: dict[str, str],
    counts: Callable[[], bool],
    tally: Tally,
) -> None:
    """Have one chat, and tell what became of its requests."""
    messages = [{"role": "system", "content": system}]
    for turn in range(TURNS):
        messages.append({"role": "user", "content": text(draw, USER)})
        body = {"model": "org/model", "stream": True, "messages": messages}
        for attempt in range(TRIES):
            client, answer = Client(port), Answer()
            with contextlib.suppress(OSError):
                answer = await client.ask(body, headers, _PATH)
            client.close()
            if counts():
                tally.statuses[str(answer.status)] += 1
            if answer.status == 200:
                break
            if attempt < TRIES - 1:
                await asyncio.sleep(float(answer.headers.get("retry-after", 2)) + draw.random())
        else:
            if counts():
                tally.lost += turn > 0
                tally.turned_away += turn == 0
            return
        if counts():
            tally.first.append(answer.first_seconds)
            tally.begun += turn == 0
        messages.append({"role": "assistant", "content": text(draw, ANSWER)})
        await asyncio.sleep(draw.expovariate(1 / THINK))


async def load(port: int, rate: float, seed: int, seconds: float, keys: tuple[str, ...]) -> Tally:
    """Begin chats so that their turns come at a rate; count what happens after three tenths."""
    draw, tally, clock = random.Random(seed), Tally(), asyncio.get_running_loop().time  # noqa: S311 - no secret
    cards = [text(draw, CARD) for _number in range(CARDS)]
    weights = [1 / (rank + 1) for rank in range(CARDS)]
    begin = clock()

    def counts() -> bool:
        return begin + 0.3 * seconds < clock() < begin + seconds

    tasks, due = [], begin
    while due < begin + seconds:
        await asyncio.sleep(max(0, due - clock()))
        own = random.Random(draw.random())  # noqa: S311 - no secret
        key = f"chat-{own.getrandbits(60)}"
        system = draw.choices(cards, weights)[0]
        headers = {"Content-Type": "application/json", **dict.fromkeys(keys, key)}
        tasks.append(asyncio.create_task(chat(port, own, system, headers, counts, tally)))
        due += draw.expovariate(rate / TURNS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally


Started = tuple[int, Callable[[], set[int]]]


@contextlib.asynccontextmanager
async def apiary(ports: list[int], place: Path, queueing: Queueing) -> AsyncIterator[Started]:
    """Run our router as the role configures it."""
    concurrency = queueing.within_slo.get("demo", SHIPPED)
    settings = RouterSettings(queueing=queueing, threads=THREADS)
    async with HAProxy(place, [pool_of(ports, concurrency)], settings) as router:
        yield router.port, router.workers


@contextlib.asynccontextmanager
async def program(argv: list[str], port: int) -> AsyncIterator[Started]:
    """Run another router until it listens."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _turn in range(600):
            with contextlib.suppress(OSError):
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            if process.poll() is not None:
                raise click.ClickException(f"it ended at once: {' '.join(argv)}")
            await asyncio.sleep(0.1)  # nothing tells when a port is open
        yield port, lambda: {process.pid}
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)  # some wait for streams that no engine ends any more
        process.kill()
        process.wait()


def plain(ports: list[int], place: Path, balance: str) -> Any:
    """Run HAProxy with a policy of its own and the engines' limit."""
    [port] = free_ports(1)
    servers = "".join(f"    server s{at} 127.0.0.1:{at} maxconn {SHIPPED}\n" for at in ports)
    (place / "plain.cfg").write_text(
        "defaults\n    mode http\n    timeout client 60s\n    timeout server 600s\n"
        "    timeout connect 5s\n    timeout queue 30s\n    option httpclose\n"
        f"listen all\n    bind 127.0.0.1:{port}\n    balance {balance}\n{servers}"
    )
    return program(["haproxy", "-db", "-f", str(place / "plain.cfg")], port)


def other(ports: list[int], argv: list[str], policy: str) -> Any:
    """Run a router of a wheel; both take the same options."""
    [port, metrics] = free_ports(2)
    argv = [*argv, "--host", "127.0.0.1", "--port", str(port), "--policy", policy]
    argv += ["--prometheus-port", str(metrics), "--worker-urls"]
    return program([*argv, *(f"http://127.0.0.1:{at}" for at in ports)], port)


def started(name: str, ports: list[int], place: Path, programs: Path) -> Any:
    """Return the router of a name: apiary, apiary:unlimited, apiary:N, a policy, program:policy."""
    kind, _colon, policy = name.partition(":")
    if kind == "apiary":
        queueing = Queueing(ttft_seconds={"demo": SLO})
        if policy == "unlimited":
            queueing = Queueing()
        elif policy:
            queueing = replace(queueing, within_slo={"demo": int(policy)})
        return apiary(ports, place, queueing)
    if kind in ("smg", "vllm-router"):
        argv = [str(programs / kind), *(["launch"] if kind == "smg" else [])]
        return other(ports, argv, policy or "cache_aware")
    balance = {"hash": "hdr(X-Session-Id)\n    hash-type consistent"}.get(name, name)
    return plain(ports, place, balance)


def cpu_seconds(processes: set[int]) -> float:
    """Return the CPU time that processes have used."""
    spent = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / os.sysconf("SC_CLK_TCK")


async def measure(
    name: str, rate: float, seed: int, seconds: float, count: int, programs: Path
) -> Row:
    """Return what a router made of one load."""
    engines = [await Engine().start() for _number in range(count)]
    with tempfile.TemporaryDirectory(prefix="router-") as directory:
        router, _slash, unkeyed = name.partition("/")
        running = started(router, [one.port for one in engines], Path(directory), programs)
        async with running as (port, workers):
            before = cpu_seconds(workers())
            tally = await load(port, rate, seed, seconds, () if unkeyed else KEYS)
            spent = cpu_seconds(workers()) - before
    for one in engines:
        if one.server is not None:
            one.server.close()
    first, window = sorted(tally.first) or [0.0], 0.7 * seconds
    requests = [one.requests for one in engines]
    refused = sum(tally.statuses.values()) - tally.statuses["200"]
    return Row(
        router=name,
        rate=rate,
        seed=seed,
        good=sum(one <= SLO for one in tally.first) / window,
        served=len(tally.first) / window,
        p50=first[len(first) // 2],
        p90=first[len(first) * 9 // 10],
        refused=refused,
        lost_percent=100 * tally.lost / max(1, tally.begun),
        new_refused=tally.turned_away,
        hit=sum(one.hits for one in engines) / max(1, sum(one.prompts for one in engines)),
        uneven=max(requests) * count / max(1, sum(requests)),
        cpu_ms=1000 * spent / max(1, (sum(tally.statuses.values()) / 0.7)),
        load=os.getloadavg()[1],
    )


def table(rows: list[Row]) -> Table:
    """Return the rows as people read them."""
    shown = Table(title=f"SLO: first token within {SLO:g} s")
    for name in Row.__dataclass_fields__:
        shown.add_column(name, justify="left" if name == "router" else "right")
    for row in rows:
        cells = asdict(row).values()
        shown.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells))
    return shown


def numbers(_context: object, _parameter: object, value: str) -> list[float]:
    return [float(part) for part in value.split(",")]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--rates", default="14,18,27,54", callback=numbers, help="Requests offered a second.")
@click.option("--seeds", default="1", callback=numbers)
@click.option("--seconds", default=150.0, show_default=True, help="Time of each run.")
@click.option("--replicas", "count", default=4, show_default=True)
@click.option("--routers", "names", default="apiary,apiary:unlimited,leastconn,roundrobin,hash")
@click.option(
    "--programs",
    type=click.Path(path_type=Path),
    default=".lab/routers/bin",
    help="Where vllm-router and smg are; these routers are vllm-router:POLICY, smg:POLICY.",
)
def main(
    as_json: bool,
    rates: list[float],
    seeds: list[float],
    seconds: float,
    count: int,
    names: str,
    programs: Path,
) -> None:
    """Measure routers under load that grows beyond what the engines can serve."""
    rows = [
        asyncio.run(measure(name, rate, int(seed), seconds, count, programs))
        for name in names.split(",")
        for rate in rates
        for seed in seeds
    ]
    if as_json:
        print(json.dumps({"slo_seconds": SLO, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        Console(width=170).print(table(rows))


if __name__ == "__main__":
    main()
