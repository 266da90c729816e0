# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas and clients that come and go, and a router that reloads, with a real HAProxy."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import renumbered
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    Timeouts,
)

from support.replicas import Client
from support.scenario import QUICK, Load, ask_all, serving

STREAM = {"chunks": 10, "seconds": 0.2}


def test_a_stream_passes_as_it_comes(place):
    async def scenario():
        async with serving(place, 2) as (_replicas, [router]):
            client = Client(router.port)
            answer = await client.ask({"chunks": 5, "seconds": 2})
            client.close()
            return answer

    answer = asyncio.run(scenario())
    print(f"first byte after {answer.first_seconds:.2f} s, last after {answer.seconds:.2f} s")
    assert answer.body.count(b"data:") == 5
    # One that is kept back comes whole.
    assert answer.seconds - answer.first_seconds > 1


def test_a_client_is_not_timed_out_while_its_replica_works(place):
    settings = RouterSettings(timeouts=Timeouts(client=1, response=30), health=QUICK)

    async def scenario():
        async with serving(place, 1, settings=settings) as (_replicas, [router]):
            client = Client(router.port)
            answer = await client.ask({"seconds": 2.5})
            client.close()
            return answer

    assert asyncio.run(scenario()).status == 200


def test_a_silent_replica_is_504(place):
    settings = RouterSettings(timeouts=Timeouts(response=1), health=QUICK)

    async def scenario():
        async with serving(place, 1, settings=settings) as (_replicas, [router]):
            client = Client(router.port)
            answer = await client.ask({"seconds": 5})
            client.close()
            return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.error) == (504, "replica_timeout")


@pytest.mark.parametrize("asked", [{"seconds": 30}, {"seconds": 30, "chunks": 300}])
def test_a_client_that_hangs_up_frees_the_replica(place, asked):
    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            client = Client(router.port)
            await client.send(asked)
            await router.until(lambda: replica.running == 1)
            client.close()
            await router.until(lambda: replica.running == 0, 5)
            return replica

    replica = asyncio.run(scenario())
    assert (replica.aborted, replica.finished) == (1, 0)


def test_a_client_that_hangs_up_leaves_the_queue(place):
    async def scenario():
        async with serving(place, 1, concurrency=1) as ([replica], [router]):
            first, second = Client(router.port), Client(router.port)
            await first.send({"seconds": 1})
            await router.until(lambda: replica.running == 1)
            await second.send({"seconds": 1})

            async def queued():
                return any(one["qcur"] == "1" for one in await router.statistics())

            await router.until(queued)
            second.close()
            await router.until(lambda: replica.finished == 1)
            third = await second.ask({})
            first.close()
            second.close()
            return replica, third

    replica, third = asyncio.run(scenario())
    assert third.status == 200
    assert sum(replica.seen.values()) == 2


def test_a_request_that_was_sent_is_never_sent_again(place):
    """A replica that dies in the middle is a clean error, and one attempt."""

    async def scenario():
        async with serving(place, 4) as (replicas, [router]):
            client = Client(router.port)
            answers = [await client.ask({"die": True}) for _number in range(10)]
            client.close()
            return answers, sum((one.seen for one in replicas), Counter())

    answers, seen = asyncio.run(scenario())
    print(f"statuses {Counter(a.status for a in answers)}, attempts {sorted(seen.values())}")
    assert {(answer.status, answer.error) for answer in answers} == {(502, "replica_lost")}
    assert sorted(seen.values()) == [1] * 10


def test_a_dead_replica_costs_only_what_it_worked_on(place):
    """Killed under load: every other request is answered, most by other replicas at once."""

    async def scenario():
        async with serving(place, 4) as (replicas, [router]):
            load = Load(router.port, 16, {"seconds": 0.05})
            keyed = Load(router.port, 16, STREAM, keyed=True)
            await load.wait_for(100)
            killed = time.monotonic()
            await replicas[1].kill()
            await load.wait_for(400)
            await keyed.wait_for(50)
            statuses = await load.end() + await keyed.end()
            failed = [one for one in load.answers + keyed.answers if one.status != 200]
            return statuses, failed, killed

    statuses, failed, killed = asyncio.run(scenario())
    print(f"statuses: {dict(statuses)}")
    # 502 before the first byte; a stream that had begun can only be cut.
    assert {answer.status for answer in failed} <= {502, 0}
    assert failed
    assert [answer for answer in failed if answer.started > killed] == []


def test_a_replica_that_fails_is_taken_out_by_its_health(place):
    """One 5xx has it checked at once; an engine that died says so at /health."""

    async def scenario():
        slow = replace(QUICK, interval=5.0, fast_interval=0.1, fall=3)
        async with serving(place, 2, settings=RouterSettings(health=slow)) as (replicas, [router]):
            client = Client(router.port)

            async def status(name):
                return {one["svname"]: one["status"] for one in await router.servers()}[name]

            # A request that fails by itself takes nothing out.
            for _number in range(20):
                await client.ask({"status": 500})
            still = [one["chkdown"] for one in await router.servers()]
            replicas[0].healthy = False
            asked = [await client.ask({"status": 500}) for _number in range(20)]
            assert replicas[0].name in {answer.replica for answer in asked}

            async def down():
                return await status(replicas[0].name) == "DOWN"

            await router.until(down, 2)
            client.close()
            return still, await status(replicas[1].name)

    still, other = asyncio.run(scenario())
    assert still == ["0", "0"]
    assert other == "UP"


def test_what_clients_do_wrong_is_no_failure_of_a_replica(place):
    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            client = Client(router.port)
            for _number in range(30):
                await client.ask({"status": 400})
            for _number in range(10):
                gone = Client(router.port)
                await gone.send({"seconds": 30})
                await router.until(lambda: replica.running == 1)
                gone.close()
                await router.until(lambda: replica.running == 0)
            client.close()
            return (await router.servers())[0]

    server = asyncio.run(scenario())
    assert (server["status"], server["chkdown"], server["hrsp_5xx"]) == ("UP", "0", "0")


def test_a_drain_loses_nothing_and_nothing_new_comes(place):
    async def scenario():
        async with serving(place, 3, concurrency=8) as (replicas, [router]):
            load = Load(router.port, 12, {"seconds": 0.03})
            keyed = Load(router.port, 12, STREAM, keyed=True)
            for turn in range(2):
                for replica in replicas:
                    await load.wait_for(60)
                    await router.set_state(replica.name, "drain")

                    async def empty(name=replica.name):
                        rows = {one["svname"]: one for one in await router.servers()}
                        return rows[name]["scur"] == rows[name]["qcur"] == "0"

                    await router.until(empty)
                    before = sum(replica.seen.values())
                    await load.wait_for(60)
                    assert sum(replica.seen.values()) == before, turn
                    await router.set_state(replica.name, "ready")
            return await load.end() + await keyed.end(), [one.aborted for one in replicas]

    statuses, aborted = asyncio.run(scenario())
    print(f"six drains: {dict(statuses)}")
    assert set(statuses) == {200}
    assert aborted == [0, 0, 0]


def test_what_waits_for_a_drained_replica_goes_elsewhere(place):
    """A drain while all are full: the queue is one, so nobody waits for the one that leaves."""

    async def scenario():
        async with serving(place, 2, concurrency=1) as (replicas, [router]):
            loads = [Load(router.port, 8, {"seconds": 0.05}, keyed=True)]
            await loads[0].wait_for(10)
            await router.set_state("host-00-0", "drain")
            await router.until(lambda: replicas[0].running == 0)
            await loads[0].wait_for(20)
            return await loads[0].end()

    assert set(asyncio.run(scenario())) == {200}


def test_reloads_lose_nothing_and_keep_drains(place):
    async def scenario():
        async with serving(place, 3, concurrency=8) as (replicas, [router]):
            await router.set_state("host-02-0", "drain")
            load = Load(router.port, 8, {"seconds": 0.02})
            keyed = Load(router.port, 8, STREAM, keyed=True)
            drained = []
            for _turn in range(3):
                await load.wait_for(80)
                await router.reload()
                drained.append(sum(replicas[2].seen.values()))
            await load.wait_for(80)
            # A set that shrinks is a reload, too.
            pool = router.pools[0]
            router.pools = (renumbered(replace(pool, servers=pool.servers[:2])),)
            router.write()
            await router.reload()
            await load.wait_for(80)
            return await load.end() + await keyed.end(), drained

    statuses, drained = asyncio.run(scenario())
    print(f"four reloads: {dict(statuses)}")
    assert set(statuses) == {200}
    assert drained == [0, 0, 0]


def test_a_replica_that_is_back_gets_its_sessions_little_by_little(place):
    sessions = [f"session-{number}" for number in range(200)]
    slow = replace(QUICK, slow_start=3.0, rise=1)

    async def scenario():
        async with serving(place, 2, settings=RouterSettings(health=slow)) as (replicas, [router]):
            lost = replicas[0]

            async def share():
                answers = await ask_all(router.port, sessions, 4)
                return sum(answer.replica == lost.name for _session, answer in answers)

            async def status(wanted):
                found = {one["svname"]: one["status"] for one in await router.servers()}
                return found[lost.name].startswith(wanted)

            whole = await share()
            await lost.kill()
            await router.until(lambda: status("DOWN"))
            none = await share()
            await lost.start()
            await router.until(lambda: status("UP"))
            soon = await share()

            async def all_back():
                return await share() == whole

            await router.until(all_back)
            return whole, none, soon

    whole, none, soon = asyncio.run(scenario())
    print(f"sessions on the replica: {whole}, {none} without it, {soon} when it was just back")
    assert none == 0
    assert 0 <= soon < 0.7 * whole
