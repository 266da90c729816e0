# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sessions and their replicas, with a real HAProxy."""

import asyncio
from collections import Counter

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    RouterSettings,
)

from support.replicas import Client
from support.scenario import QUICK, ask_all, at_home, homes, serving, zipf

SESSIONS = [f"session-{number}" for number in range(1000)]


def test_sessions_stay_while_the_replicas_do(place):
    async def scenario():
        async with serving(place, 8) as (_replicas, [router]):
            known = homes(await ask_all(router.port, SESSIONS, 16))
            answers = await ask_all(router.port, zipf(8000, 1000), 16)
            return at_home(answers, known), len(answers), known

    stayed, count, known = asyncio.run(scenario())
    print(f"stayed: {stayed} of {count} ({stayed / count:.4%})")
    assert stayed >= 0.999 * count
    shares = Counter(known.values())
    print(f"sessions by replica: {sorted(shares.values())}")
    assert max(shares.values()) < 1.35 * 1000 / 8


def test_a_replica_that_leaves_moves_only_its_own_sessions_and_they_come_back(place):
    async def scenario():
        async with serving(place, 5) as (_replicas, [router]):
            before = homes(await ask_all(router.port, SESSIONS, 16))
            await router.set_state("host-02-0", "drain")
            without = homes(await ask_all(router.port, SESSIONS, 16))
            await router.set_state("host-02-0", "ready")
            return before, without, homes(await ask_all(router.port, SESSIONS, 16))

    before, without, after = asyncio.run(scenario())
    moved = [session for session in SESSIONS if before[session] != without[session]]
    print(f"moved: {len(moved)} of {len(SESSIONS)} ({len(moved) / len(SESSIONS):.2%}), N = 5")
    assert len(moved) <= (1 / 5 + 0.02) * len(SESSIONS)
    assert {before[session] for session in moved} == {"host-02-0"}
    # Not all to one neighbour
    assert len({without[session] for session in moved}) == 4
    assert after == before


def test_routers_agree_whatever_their_order(place):
    async def scenario():
        async with serving(place, 6, routers=3) as (_replicas, routers):
            return [homes(await ask_all(router.port, SESSIONS[:500], 8)) for router in routers]

    first, *others = asyncio.run(scenario())
    differing = [sum(first[one] != other[one] for one in first) for other in others]
    print(f"sessions that routers disagree on: {differing} of {len(first)}")
    assert differing == [0, 0]


def test_routers_agree_on_what_is_tried_again(place):
    """The second choice is HAProxy's own, by ids: both routers know of no dead replica yet."""

    async def scenario():
        async with serving(place, 6, routers=2) as (replicas, routers):
            own = homes(await ask_all(routers[0].port, SESSIONS[:300], 8))
            for router in routers:
                for number in range(6):
                    await router.command(f"disable health demo/host-{number:02}-0")
            await replicas[3].stop()
            return own, [homes(await ask_all(router.port, SESSIONS[:300], 8)) for router in routers]

    own, [first, second] = asyncio.run(scenario())
    moved = [session for session in own if own[session] == "host-03-0"]
    assert len(moved) > 20
    assert first == second
    assert len({first[session] for session in moved}) > 1


@pytest.mark.parametrize("skew", [1.1, 2.0])
def test_no_replica_is_above_the_bound_under_skewed_sessions(place, skew):
    """A fifth of the requests and more are of one session: the bound moves some of them."""
    clients, count, concurrency = 64, 8, 16
    # Threads decide at once, each of what it sees: with n of them n - 1 requests more can slip in.
    settings = RouterSettings(affinity=Affinity(balance_percent=125), health=QUICK, threads=1)

    async def scenario():
        async with serving(place, count, concurrency, settings) as (replicas, [router]):
            sessions = zipf(2500, 500, skew)
            answers = await ask_all(router.port, sessions, clients, {"seconds": 0.05})
            return [replica.peak for replica in replicas], answers

    peaks, answers = asyncio.run(scenario())
    # More than the bound of the present requests, or than a quarter of the limit
    bound = max(-(-1.25 * clients // count), concurrency // 4)
    print(f"peaks {peaks}, bound {bound}")
    assert {answer.status for _session, answer in answers} == {200}
    assert max(peaks) <= bound


def test_the_first_key_that_a_request_has_counts(place):
    keys = ("header:X-Session-Id", "cookie:session", "json:user", "json:prompt_cache_key")
    settings = RouterSettings(affinity=Affinity(keys=keys), health=QUICK)

    async def scenario():
        async with serving(place, 8, settings=settings) as (_replicas, [router]):
            client = Client(router.port)

            async def where(asked=None, **headers):
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return (await client.ask(asked, named)).replica

            found = []
            for name in ("a", "b", "c", "d"):
                long = {"user": name, "prompt": "x" * 100_000}
                found.append(
                    {
                        await where(X_Session_Id=name),
                        await where({"user": "other"}, X_Session_Id=name),
                        await where(Cookie=f"x=1; session={name}"),
                        await where({"user": name}),
                        await where(long),
                        await where({"prompt_cache_key": name}),
                    }
                )
            client.close()
            return found

    found = asyncio.run(scenario())
    assert all(len(replicas) == 1 for replicas in found), found
    assert len(set().union(*found)) > 1


def test_what_is_beyond_the_head_of_a_body_names_no_session(place):
    settings = RouterSettings(
        affinity=Affinity(keys=("json:user",), json_bytes=16384), health=QUICK
    )

    async def scenario():
        async with serving(place, 3, settings=settings) as (_replicas, [router]):
            client = Client(router.port)
            asked = {"prompt": "x" * 3_000_000, "user": "a"}
            answers = [await client.ask(asked) for _number in range(12)]
            client.close()
            return answers

    answers = asyncio.run(scenario())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.replica for answer in answers}) > 1


def test_the_address_is_a_key_where_that_is_asked_for(place):
    settings = RouterSettings(affinity=Affinity(keys=("address",)), health=QUICK)

    async def scenario():
        async with serving(place, 4, settings=settings) as (_replicas, [router]):
            return await ask_all(router.port, [None] * 40, 4)

    assert len({answer.replica for _session, answer in asyncio.run(scenario())}) == 1


def test_a_client_cannot_choose_the_hash_itself(place):
    async def scenario():
        async with serving(place, 4) as (replicas, [router]):
            client = Client(router.port)
            for _number in range(20):
                await client.ask({}, {"X-Apiary-Session": "1"})
            client.close()
            return replicas

    replicas = asyncio.run(scenario())
    assert sum(bool(replica.headers) for replica in replicas) > 1
    assert not any("x-apiary-session" in seen for one in replicas for seen in one.headers)


def test_of_an_id_only_the_low_twenty_bits_count(place):
    """Why ids are no longer: two that differ above have the same places on HAProxy's own ring.

    Which of the two is first at a place is then a matter of their order in the file.
    """

    async def disagreed(second):
        async with serving(place / str(second), 2, routers=2) as (_replicas, routers):
            found = []
            for router in routers:
                path = router.directory / "haproxy.cfg"
                lines = path.read_text().splitlines()
                # Without the chooser HAProxy's hash is the only choice.
                text = "\n".join(line for line in lines if "txn.replica" not in line)
                ids = {"host-00-0": 1, "host-01-0": second}
                for server in router.pools[0].servers:
                    text = text.replace(f" id {server.id} ", f" id {ids[server.name]} ")
                path.write_text(text + "\n")
                await router.restart()
                found.append(homes(await ask_all(router.port, SESSIONS[:200], 4)))
            return sum(found[0][session] != found[1][session] for session in found[0])

    apart, together = asyncio.run(disagreed(2)), asyncio.run(disagreed(1 + (1 << 20)))
    print(f"disagreed of 200: {apart} for ids 1 and 2, {together} for 1 and 1 + 2^20")
    assert apart == 0
    assert together > 20
