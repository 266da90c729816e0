# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A share of a deployment's sessions at another one, with a real HAProxy and with its Lua alone."""

import asyncio
import contextlib
import hashlib
import json
import math
import subprocess
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.live import (
    compare_sides,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import render_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    Experiment,
    Queueing,
    Router,
    RouterSettings,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from support.replicas import Client, Replica
from support.router.haproxy import HAProxy, free_ports, pool_of
from support.scenario import QUICK

SUPPORT = Path(__file__).parents[1] / "support/router"
SESSIONS = [f"session-{number}" for number in range(400)]
KEY = "k" * 20


def dividing(share):
    return {"a": Experiment("b", share)}


@contextlib.asynccontextmanager
async def two_sides(place, share, concurrency=1000, **more):
    """Have deployment a with two replicas and b with one, which gets a share of a's sessions."""
    replicas = [await Replica(name).start() for name in ("a0", "a1", "b0")]
    options = RouterSettings(
        health=QUICK, shared_port=free_ports(1)[0], experiments=dividing(share), **more
    )
    pools = [
        pool_of([one.port for one in replicas[:2]], concurrency, deployment="a"),
        pool_of([replicas[2].port], concurrency, deployment="b"),
    ]
    router = HAProxy(place / "r", pools, options)
    assert router.check() == ""
    try:
        yield replicas, await router.start()
    finally:
        router.stop()
        for replica in replicas:
            await replica.kill()
        for _turn in range(3):
            await asyncio.sleep(0)


async def sides(router, sessions=SESSIONS, port=None):
    """Return which deployment each session was answered by, "" where it was refused."""
    answers, waiting = {}, list(sessions)

    async def client():
        while waiting:
            session = waiting.pop()
            one = Client(port or router.port)
            answer = await one.ask({"model": "org/model"}, {"X-Session-Id": session})
            answers[session] = answer.replica[:1]
            one.close()

    await asyncio.gather(*(client() for _number in range(8)))
    return answers


def bounds(count, share, deviations=5):
    spread = deviations * math.sqrt(count * share * (1 - share))
    return count * share - spread, count * share + spread


def test_sessions_keep_their_side_at_every_port_and_over_reloads(place):
    async def scenario():
        async with two_sides(place, 0.2) as (_replicas, router):
            found = [await sides(router), await sides(router, port=router.settings.shared_port)]
            await router.reload()
            found.append(await sides(router))
            router.settings = replace(router.settings, experiments=dividing(0.5))
            router.write()
            await router.reload()
            return found, await sides(router), await sides(router, port=router.pools[1].port)

    found, more, own = asyncio.run(scenario())
    assert found == [found[0]] * 3
    low, high = bounds(len(SESSIONS), 0.2)
    assert low < Counter(found[0].values())["b"] < high
    low, high = bounds(len(SESSIONS), 0.5)
    assert low < Counter(more.values())["b"] < high
    # A larger share moves sessions in one direction alone.
    assert all(more[name] == "b" for name, side in found[0].items() if side == "b")
    # The other deployment's own port is as before.
    assert set(own.values()) == {"b"}


def test_without_a_replica_of_the_other_deployment_the_divided_one_answers(place):
    async def scenario():
        async with two_sides(place, 0.3) as (replicas, router):
            before = await sides(router)
            # Drained: no server that is usable, though it is up.
            assert not await router.command("set server b/host-00-0 state drain")
            drained = await sides(router)
            assert not await router.command("set server b/host-00-0 state ready")
            after = await sides(router)
            stream = await Client(router.port).ask(
                {"chunks": 2, "seconds": 0.2}, {"X-Session-Id": SESSIONS[0]}
            )
            for replica in replicas[:2]:
                replica.healthy = False

            async def both_down():
                return sum(one["status"] == "DOWN" for one in await router.servers()) == 2

            await router.until(both_down)
            alone = await sides(router, SESSIONS[:20])
            port = router.settings.admin_port
            counts = await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{port}/counts", timeout=9
            )
            text = counts.read().decode()
        return before, drained, after, stream, alone, text, router.entries()

    before, drained, after, stream, alone, text, lines = asyncio.run(scenario())
    assert set(drained.values()) == {"a"}
    assert after == before
    assert stream.status == 200
    # The port is the divided deployment's: without a replica of its own it refuses.
    assert set(alone.values()) == {""}
    second = Counter(before.values())["b"]
    first = len(SESSIONS) - second
    own = before[SESSIONS[0]]
    series = 'apiary_router_experiment_requests_total{proxy="%s",of="a",side="%s"} %d\n'
    assert series % ("a", "a", 3 * first + (own == "a")) in text
    assert series % ("b", "b", 2 * second + (own == "b")) in text
    assert series % ("a", "b", second) in text
    seen = Counter((line["side"], line["deployment"], line["status"]) for line in lines)
    # The kernel may drop lines of a busy machine; the counts above are exact.
    assert set(seen) == {("a", "a", 200), ("b", "b", 200), ("b", "a", 200), ("-", "a", 503)}
    # Such a log can be compared, and b's requests that a answered are named.
    found = compare_sides(map(json.dumps, lines))
    doubts = [(one.subject, one.message) for one in found.findings]
    instead = seen["b", "a", 200]
    assert ("b", f"a answered {instead} requests for it, which count on no side") in doubts
    known = {line["session"] for line in lines if line["side"] == "a"}
    assert {one.a.n for one in found.verdicts if one.what == "e2el, s"} == {len(known)}
    [streamed] = [line for line in lines if line["stream"] == "yes"]
    assert 50 < int(streamed["ms_first_token"]) < streamed["ms_total"]
    assert {line["ms_first_token"] for line in lines if line["stream"] != "yes"} == {"-"}


def test_each_side_has_its_own_queue(place):
    async def scenario():
        async with two_sides(place, 0.5, 1, queueing=Queueing(per_replica=1)) as (
            _replicas,
            router,
        ):
            found = await sides(router)
            of_b = [name for name, side in found.items() if side == "b"]
            of_a = next(name for name, side in found.items() if side == "a")

            def ask(session, **body):
                return Client(router.port).ask(body, {"X-Session-Id": session})

            held = [asyncio.create_task(ask(name, seconds=30)) for name in of_b[:2]]

            async def waiting():
                rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
                return rows["b", "BACKEND"]["scur"] == "2"

            await router.until(waiting)
            answers = [await ask(of_b[2]), await ask(of_a)]
            for one in held:
                one.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            return answers

    full, free = asyncio.run(scenario())
    assert (full.status, full.error) == (429, "engine_overloaded")
    assert (free.status, free.replica[0]) == (200, "a")


def test_each_side_gets_its_own_engines_key(place):
    keys = (ApiKey("one", hashlib.sha256(KEY.encode()).hexdigest()),)
    headers = {"Authorization": f"Bearer {KEY}"}

    async def scenario():
        async with two_sides(place, 0.5, 1, keys=keys) as (replicas, router):
            router.pools = tuple(replace(pool, engine_key=True) for pool in router.pools)
            router.write({"a": "key-of-a", "b": "key-of-b"})
            await router.reload()
            for port in (router.port, router.settings.shared_port):
                for session in SESSIONS[:20]:
                    named = headers | {"X-Session-Id": session}
                    body = {"model": "org/model"}
                    assert (await Client(port).ask(body, named)).status == 200
            return [{one["authorization"] for one in replica.headers} for replica in replicas]

    seen = asyncio.run(scenario())
    assert seen == [{"Bearer key-of-a"}] * 2 + [{"Bearer key-of-b"}]


def test_requests_without_a_session_are_divided_one_by_one(place):
    async def scenario():
        async with two_sides(place, 0.5) as (_replicas, router):
            client = Client(router.settings.shared_port)
            body = {"model": "org/model", "input": "x"}
            divided = [await client.ask(body, {}, "/v1/embeddings") for _number in range(200)]
            # One that a client sends again has its id again.
            named = {"X-Request-Id": "again"}
            again = [await client.ask(body, named, "/v1/embeddings") for _number in range(10)]
            return [[one.replica[:1] for one in each] for each in (divided, again)]

    divided, again = asyncio.run(scenario())
    low, high = bounds(200, 0.5)
    assert low < Counter(divided)["b"] < high
    assert len(set(again)) == 1


# What HAProxy gives the Lua; of sessions on standard input it prints the deployments.
SCRIPT = """
core = {
    backends = {}, register_service = function() end, register_action = function() end,
    register_fetches = function(name, called) if name == "apiary_side" then side = called end end,
    thread = 1,
}
dofile(arg[1])
for session in io.lines() do
    local f = {
        req_fhdr = function() return session end, nbsrv = function() return 1 end,
        stopping = function() return 0 end,
    }
    local txn = { f = f, get_var = function() end, set_var = function() end }
    io.write(side(txn, "a"), "\\n")
end
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Return what gives the sessions (numbers of 64 bits) that b has at a share."""
    place = tmp_path_factory.mktemp("lua")
    (place / "script.lua").write_text(SCRIPT)

    def draw(sessions, share):
        pools = (pool_of([1], deployment="a"), pool_of([2], deployment="b"))
        router = Router(RouterSettings(experiments=dividing(share)), pools)
        files = {file.path.rpartition("/")[2]: file.content for file in render_router(router)}
        (place / "replica.lua").write_text(files["replica.lua"])
        done = subprocess.run(
            ["lua5.3", place / "script.lua", place / "replica.lua"],
            input="".join(f"{session}\n" for session in sessions),
            capture_output=True,
            text=True,
            check=True,
        )
        pairs = zip(sessions, done.stdout.split(), strict=True)
        return {session for session, name in pairs if name == "b"}

    return draw


@settings(max_examples=25, deadline=None)
@given(
    start=st.integers(-(2**63), 2**63 - 2001),
    step=st.sampled_from([1, 2, 4096, 2**40 + 1]),
    share=st.floats(0, 1),
    more=st.floats(0, 1),
)
def test_the_share_is_kept_and_a_larger_one_only_adds(drawn, start, step, share, more):
    numbers = [(start + step * number + 2**63) % 2**64 - 2**63 for number in range(2000)]
    share, more = sorted((share, more))
    few, many = drawn(numbers, share), drawn(numbers, more)
    assert few <= many
    for found, part in ((few, share), (many, more)):
        low, high = bounds(len(numbers), part, 6)
        assert low - 1 <= len(found) <= high + 1
