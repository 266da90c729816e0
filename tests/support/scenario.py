# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas and routers in front of them, and load on them, for the tests of the router."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Health,
    RouterSettings,
)

from support.replicas import Answer, Client, Replica
from support.router.haproxy import HAProxy, pool_of

# As by default, but for a test's patience.
QUICK = Health(interval=0.2, fast_interval=0.1, down_interval=0.2, slow_start=0)


@contextlib.asynccontextmanager
async def serving(
    place: Path,
    count: int,
    concurrency: int = 1000,
    settings: RouterSettings | None = None,
    routers: int = 1,
) -> AsyncIterator[tuple[list[Replica], list[HAProxy]]]:
    """Have replicas and routers; every second router has the replicas in another order."""
    replicas = [await Replica(f"host-{index:02}-0").start() for index in range(count)]
    pool = pool_of([replica.port for replica in replicas], concurrency)
    proxies = []
    try:
        for number in range(routers):
            own = pool_of([replica.port for replica in replicas], concurrency)
            servers = own.servers[::-1] if number % 2 else own.servers
            own = type(pool)(own.deployment, own.model, own.port, servers)
            proxy = HAProxy(place / f"r{number}", [own], settings or RouterSettings(health=QUICK))
            proxies.append(proxy)
            await proxy.start()
        yield replicas, proxies
    finally:
        for proxy in proxies:
            proxy.stop()
        # In its next turns the loop closes sockets, and on a busy machine lets in who came last.
        for _turn in range(9):
            for replica in replicas:
                await replica.kill()
            await asyncio.sleep(0)


def zipf(count: int, sessions: int, skew: float = 1.1, seed: int = 1) -> list[str]:
    """Return sessions as users have them: few ask most of the requests."""
    weights = [1 / (rank + 1) ** skew for rank in range(sessions)]
    chosen = random.Random(seed).choices(range(sessions), weights, k=count)
    return [f"session-{number}" for number in chosen]


async def ask_all(
    port: int, sessions: Sequence[str | None], clients: int, asked: dict | None = None
) -> list[tuple[str | None, Answer]]:
    """Ask once for each session, with so many clients at once."""
    waiting = list(sessions)[::-1]
    answers: list[tuple[str | None, Answer]] = []

    async def client() -> None:
        with contextlib.closing(Client(port)) as one:
            while waiting:
                session = waiting.pop()
                headers = {"X-Session-Id": session} if session else {}
                answers.append((session, await one.ask(asked, headers)))

    await asyncio.gather(*(client() for _number in range(clients)))
    return answers


def homes(answers: Sequence[tuple[str | None, Answer]]) -> dict[str, str]:
    """Return the replica that each session had most of its answers from."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for session, answer in answers:
        counts[session or ""][answer.replica] += 1
    return {session: found.most_common(1)[0][0] for session, found in counts.items()}


def at_home(answers: Sequence[tuple[str | None, Answer]], known: dict[str, str]) -> int:
    """Return how many answers came from the session's own replica."""
    return sum(known[session or ""] == answer.replica for session, answer in answers)


class Load:
    """Clients that ask without a pause until they are told to end; it keeps all answers."""

    def __init__(self, port: int, clients: int, asked: dict, keyed: bool = False) -> None:
        self.answers: list[Answer] = []
        self._ending = False
        self._tasks = [
            asyncio.create_task(self._client(port, asked, f"s{number}" if keyed else None))
            for number in range(clients)
        ]

    async def _client(self, port: int, asked: dict, session: str | None) -> None:
        headers = {"X-Session-Id": session} if session else {}
        with contextlib.closing(Client(port)) as client:
            while not self._ending:
                self.answers.append(await client.ask(asked, headers))

    async def wait_for(self, count: int) -> None:
        """Wait until so many more answers are there."""
        goal = len(self.answers) + count
        async with asyncio.timeout(60):
            while len(self.answers) < goal:
                await asyncio.sleep(0.01)

    async def end(self) -> Counter[int]:
        """Stop asking, and return how many answers had which status; 0 is one that was lost."""
        self._ending = True
        await asyncio.gather(*self._tasks)
        return Counter(answer.status for answer in self.answers)
