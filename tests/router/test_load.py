# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""More requests than replicas can have, with a real HAProxy."""

import asyncio
from collections import Counter

from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    RouterSettings,
)

from support.replicas import Client
from support.scenario import QUICK, ask_all, serving


def test_requests_of_no_session_go_where_the_fewest_are(place):
    """Long requests of a session hold one replica; the others get all that has no session."""

    async def scenario():
        async with serving(place, 4) as (replicas, [router]):
            held = [Client(router.port) for _number in range(12)]
            for client in held:
                await client.send({"seconds": 30}, {"X-Session-Id": "busy"})
            await router.until(lambda: sum(one.running for one in replicas) == 12)
            before = +Counter({one.name: sum(one.seen.values()) for one in replicas})
            await ask_all(router.port, [None] * 300, 8, {"seconds": 0.01})
            after = Counter({one.name: sum(one.seen.values()) for one in replicas})
            for client in held:
                client.close()
            return before, after - before

    before, got = asyncio.run(scenario())
    [busy] = before
    print(f"busy: {busy}, requests of no session: {dict(got)}")
    assert busy not in got
    assert max(got.values()) < 1.3 * 100


def test_no_replica_gets_more_than_its_limit_and_the_rest_waits_its_turn(place):
    async def scenario():
        async with serving(place, 3, concurrency=4) as (replicas, [router]):
            sessions = [f"s{number % 20}" if number % 2 else None for number in range(300)]
            answers = await ask_all(router.port, sessions, 40, {"seconds": 0.05})
            return [one.peak for one in replicas], answers

    peaks, answers = asyncio.run(scenario())
    assert {answer.status for _session, answer in answers} == {200}
    assert peaks == [4, 4, 4]
    # Answers are in the order in which they ended. Each of 40 clients waits for two or three turns
    # of 12 places; whoever is passed over is overtaken by request after request.
    began = [answer.started for _session, answer in answers]
    overtaken = sorted(
        sum(other > mine for other in began[:place]) for place, mine in enumerate(began)
    )
    print(f"overtaken: median {overtaken[150]}, p99 {overtaken[-3]}, at most {overtaken[-1]}")
    assert overtaken[-3] < 40


def test_beyond_the_queue_is_429_at_once_and_says_when_to_come_back(place):
    settings = RouterSettings(
        queueing=Queueing(per_replica=5, retry_after_seconds=7, timeout_seconds=20), health=QUICK
    )

    async def scenario():
        async with serving(place, 2, concurrency=2, settings=settings) as (replicas, [router]):
            answers = await ask_all(router.port, [None] * 60, 60, {"seconds": 1.5})
            return [one.peak for one in replicas], [answer for _session, answer in answers]

    peaks, answers = asyncio.run(scenario())
    statuses = Counter(answer.status for answer in answers)
    print(f"statuses: {dict(statuses)}")
    assert peaks == [2, 2]
    # 4 places and 10 in the queue, of which HAProxy rounds one away
    assert 13 <= statuses[200] <= 18
    assert set(statuses) == {200, 429}
    turned_away = [answer for answer in answers if answer.status == 429]
    assert {answer.error for answer in turned_away} == {"engine_overloaded"}
    waits = {int(answer.headers["retry-after"]) for answer in turned_away}
    # By chance, so that they do not all come back at once.
    assert len(waits) > 1
    assert waits <= set(range(7, 15))
    # Before any of those that were let in is answered.
    assert answers[: len(turned_away)] == turned_away


def test_where_all_are_full_new_sessions_wait_in_one_queue(place):
    """Before, each waited for a replica that the hash of a retry chose, which may be free last."""

    async def scenario():
        async with serving(place, 3, concurrency=1) as (replicas, [router]):
            clients = [Client(router.port) for _number in range(9)]
            # One after the other: two that come at once may choose one replica.
            for busy, client in enumerate(clients[:3], 1):
                await client.send({"seconds": 60})
                await router.until(lambda busy=busy: sum(one.running for one in replicas) == busy)
            for number, client in enumerate(clients[3:]):
                await client.send({"seconds": 60}, {"X-Session-Id": f"session-{number}"})

            async def all_wait():
                rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
                return rows["demo", "BACKEND"]["scur"] == "9"

            await router.until(all_wait)
            queued = {one["svname"]: one["qcur"] for one in await router.statistics()}
            for client in clients:
                client.close()
            return {name: queued[name] for name in ("BACKEND", *(one.name for one in replicas))}

    assert asyncio.run(scenario()) == {
        **dict.fromkeys(("host-00-0", "host-01-0", "host-02-0"), "0"),
        "BACKEND": "6",
    }


def test_who_waits_too_long_gets_503(place):
    settings = RouterSettings(queueing=Queueing(timeout_seconds=1), health=QUICK)

    async def scenario():
        async with serving(place, 1, concurrency=1, settings=settings) as ([replica], [router]):
            holder, client = Client(router.port), Client(router.port)
            await holder.send({"seconds": 60})
            await router.until(lambda: replica.running == 1)
            answer = await client.ask({})
            holder.close()
            client.close()
            return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.error) == (503, "unavailable")
    assert answer.headers["retry-after"] in {"2", "3", "4"}


def test_without_a_replica_it_is_503_at_once(place):
    async def scenario():
        async with serving(place, 2) as (_replicas, [router]):
            for name in ("host-00-0", "host-01-0"):
                await router.set_state(name, "maint")
            client = Client(router.port)
            answers = [await client.ask({}), await client.ask({}, path="/health")]
            client.close()
            admin = Client(router.settings.admin_port)
            answers += [await admin.ask({}, path="/ready"), await admin.ask({}, path="/health")]
            admin.close()
            return answers

    asked, health, ready, alive = asyncio.run(scenario())
    assert (asked.status, asked.error) == (503, "no_replica")
    assert asked.headers["retry-after"] in {"2", "3", "4"}
    assert (health.status, ready.status, alive.status) == (503, 503, 200)
    # In a queue it would wait for all of the timeout.
    assert asked.seconds < Queueing().timeout_seconds / 2
