# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica that stops without a drain, with a real HAProxy and the supervisor's own agent."""

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render import unit
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.agent import Agent
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import Context
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.main import _nobody
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import RouterSettings

from support.replicas import Client, Replica
from support.router.haproxy import HAProxy, free_ports, pool_of
from support.scenario import QUICK, Load, ask_all, homes

STREAM = {"chunks": 20, "seconds": 0.6}


class Supervised:
    """A replica as its supervisor has it: what `launch` does at a start and a stop."""

    def __init__(self, index, port):
        self.replica = Replica(f"host-{index:02}-0")
        fields = {"listen_address": "127.0.0.1", "agent_port": port}
        life = json.loads(unit.life_document())
        self.context = Context(replace(_nobody("x"), **fields), life, {})

    async def start(self):
        self.agent = Agent(self.context)
        self.agent.start()
        self.replica.refusing = False
        await self.replica.start()
        self.agent.up()

    async def stop(self):
        """Return how long it waited for the routers; requests in flight end before it does."""
        heard = self.agent.down()
        await asyncio.sleep(heard)
        self.replica.refusing = True
        async with asyncio.timeout(20):
            while self.replica.running:
                await asyncio.sleep(0.01)
        self.end()
        await self.replica.kill()
        return heard

    def end(self):
        self.agent.end()


@contextlib.asynccontextmanager
async def fleet(place, count, routers=1, agents=True, health=QUICK):
    ports = free_ports(count)
    replicas = [Supervised(index, port) for index, port in enumerate(ports)]
    proxies = []
    try:
        for replica in replicas:
            await replica.start()
        for number in range(routers):
            pool = pool_of([one.replica.port for one in replicas])
            servers = tuple(
                replace(server, agent_port=port if agents else None)
                for server, port in zip(pool.servers, ports, strict=True)
            )
            settings = RouterSettings(health=health)
            proxies.append(
                HAProxy(place / f"r{number}", [replace(pool, servers=servers)], settings)
            )
            await proxies[-1].start()
        yield replicas, proxies
    finally:
        for proxy in proxies:
            proxy.stop()
        for replica in replicas:
            replica.end()
            await replica.replica.kill()
        for _turn in range(3):
            await asyncio.sleep(0)


def status_is(router, name, wanted):
    async def told():
        rows = {one["svname"]: one["status"] for one in await router.servers()}
        return rows[name].startswith(wanted)

    return told


@pytest.mark.parametrize("agents", [True, False], ids=["agent", "health alone"])
def test_a_replica_that_stops_without_a_drain_costs_nothing(place, agents):
    """Without the agent the emptiest replica is the one that refuses: what it would be like."""

    async def scenario():
        async with fleet(place, 3, routers=2, agents=agents) as (replicas, routers):
            loads = [Load(router.port, 6, {"seconds": 0.02}) for router in routers]
            loads += [Load(router.port, 6, STREAM, keyed=True) for router in routers]
            for stopped in replicas[:2]:
                for load in loads:
                    await load.wait_for(20)
                waited = await stopped.stop()
                assert waited == (2 if agents else 0)
                await loads[0].wait_for(50)
                await stopped.start()
                for router in routers:
                    await router.until(status_is(router, stopped.replica.name, "UP"))
            seen = sum(replicas[0].replica.seen.values())
            await loads[0].wait_for(50)
            again = sum(replicas[0].replica.seen.values()) - seen
            statuses = sum([await load.end() for load in loads], Counter())
            return statuses, again

    statuses, again = asyncio.run(scenario())
    print(f"two replicas restarted: {dict(statuses)}")
    assert again
    if agents:
        assert set(statuses) == {200}
    else:
        assert statuses[500]


def test_streams_of_a_replica_that_says_down_go_on_and_sessions_move(place):
    sessions = [f"session-{number}" for number in range(60)]

    async def scenario():
        async with fleet(place, 3) as (replicas, [router]):
            before = homes(await ask_all(router.port, sessions, 8))
            name = replicas[0].replica.name
            mine = next(session for session in sessions if before[session] == name)
            client = Client(router.port)
            stream = asyncio.create_task(
                client.ask({"chunks": 30, "seconds": 4}, {"X-Session-Id": mine})
            )
            await router.until(lambda: replicas[0].replica.running == 1)
            replicas[0].agent.down()
            await router.until(status_is(router, name, "DOWN"), 2)
            without = homes(await ask_all(router.port, sessions, 8))
            answer = await stream
            client.close()
            replicas[0].agent.up()
            await router.until(status_is(router, name, "UP"), 2)
            return before, without, homes(await ask_all(router.port, sessions, 8)), answer, name

    before, without, after, answer, name = asyncio.run(scenario())
    assert (answer.status, answer.body.count(b"data:"), answer.replica) == (200, 30, name)
    moved = {session for session in sessions if before[session] != without[session]}
    assert moved == {session for session in sessions if before[session] == name}
    assert len({without[session] for session in moved}) == 2
    assert after == before


def test_what_the_agent_says_ends_no_drain_and_survives_a_reload(place):
    async def scenario():
        async with fleet(place, 2) as (replicas, [router]):
            name = replicas[0].replica.name
            await router.set_state(name, "drain")
            replicas[0].agent.down()
            await router.until(status_is(router, name, "DOWN"), 3)
            await router.reload()
            reloaded = await status_is(router, name, "DOWN")()
            replicas[0].agent.up()
            await router.until(status_is(router, name, "DRAIN"), 3)
            asked = Client(router.port)
            for _number in range(10):
                await asked.ask({})
            asked.close()
            drained = sum(replicas[0].replica.seen.values())
            await router.set_state(name, "ready")
            await router.until(status_is(router, name, "UP"), 3)
            return reloaded, drained

    assert asyncio.run(scenario()) == (True, 0)


def test_a_replica_that_says_up_again_gets_its_sessions_little_by_little(place):
    sessions = [f"session-{number}" for number in range(200)]
    slow = replace(QUICK, slow_start=4.0, rise=1)

    async def scenario():
        async with fleet(place, 2, health=slow) as (replicas, [router]):
            name = replicas[0].replica.name

            async def share():
                answers = await ask_all(router.port, sessions, 4)
                return sum(answer.replica == name for _session, answer in answers)

            whole = await share()
            replicas[0].agent.down()
            await router.until(status_is(router, name, "DOWN"), 3)
            none = await share()
            replicas[0].agent.up()
            await router.until(status_is(router, name, "UP"), 3)
            return whole, none, await share()

    whole, none, soon = asyncio.run(scenario())
    print(f"sessions on the replica: {whole}, {none} while it says down, {soon} when just up")
    assert none == 0
    assert soon < 0.7 * whole
