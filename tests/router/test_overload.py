# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the router refuses in an overload: its Lua in times that a test sets, and a real HAProxy."""

import asyncio
import hashlib
import math
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import render_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    Queueing,
    Router,
    RouterSettings,
)

from support.replicas import Client
from support.router.haproxy import pool_of
from support.scenario import QUICK, serving

SUPPORT = Path(__file__).parents[1] / "support/router"
FACTS = knowledge("router.yml")["overload"]
SHIPPED = 256
UNLIMITED, TIMED = Queueing(), Queueing(ttft_seconds={"demo": 2})


def lua(place, script, queueing=None, replicas=4, limit=SHIPPED):
    """Return the lines that a script prints; see support/router/chooser.lua."""
    router = Router(RouterSettings(queueing=queueing or TIMED), (pool_of([8000]),))
    files = {file.path.rpartition("/")[2]: file.content for file in render_router(router)}
    place.mkdir(exist_ok=True)
    (place / "replica.lua").write_text(files["replica.lua"])
    argv = ["lua5.3", SUPPORT / "chooser.lua", place / "replica.lua", str(replicas), str(limit)]
    done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.split()


# The limit by what is let in: new sessions until one is refused.
ROOM = """
function room(name, running, place)
    for requests = 0, 999 do
        for key in pairs(process) do if key:match("_recent$") then process[key] = nil end end
        for _, one in ipairs(names) do conn[one] = 999 end
        conn[name] = requests
        if choose("1", running, place) ~= name then return requests end
    end
end
function tokens(seconds, count)
    for _ = 1, count do
        local name, first = choose("1", true)
        now = now + seconds
        first()
    end
end
function others(requests)
    for _, one in ipairs(names) do conn[one] = one == home and conn[home] or requests end
end
-- The limit of home goes to the least: what is there falls with it.
function late()
    others(999)
    for requests = 20, 1, -1 do
        conn[home] = requests
        tokens(3, 20)
    end
end
home = choose("1")
"""


def test_without_a_limit_the_queue_is_in_the_order_of_arrival():
    """Sessions that run came first everywhere, so that new ones starved behind busy chats."""
    for queueing, first in (
        (UNLIMITED, False),
        (TIMED, True),
        (Queueing(within_slo={"demo": 8}), True),
    ):
        router = Router(RouterSettings(queueing=queueing), (pool_of([8000]),))
        text = render_router(router)[0].content
        assert ("set-priority-class" in text, "in_table" in text) == (first, first)


def test_a_session_that_runs_waits_at_its_own_replica(place):
    script = """
    home = choose("1")
    for _, one in ipairs(names) do conn[one] = one == home and 20 or 5 end
    print(choose("1", true) == home, (choose("1")), home)
    for _, one in ipairs(names) do conn[one] = one == home and 20 or 1 end
    print(choose("1", true) == home)
    """
    found = lua(place, script, Queueing(within_slo={"demo": 8}), limit=8)
    own, elsewhere, home, spare = found
    # Unless others have room to spare: many requests of one key are no chat.
    assert (own, spare) == ("true", "false")
    # What is new has no cache to lose.
    assert elsewhere.startswith("host-")
    assert elsewhere != home


def test_many_requests_of_one_key_go_to_all_replicas(place):
    script = "for _ = 1, 48 do local one = choose('1', true); conn[one] = conn[one] + 1 end"
    script += "; for _, one in ipairs(names) do print(conn[one]) end"
    found = sorted(map(int, lua(place, script, Queueing(within_slo={"demo": 12}), limit=12)))
    others = math.ceil(12 * FACTS["spare"])
    assert found == [others] * 3 + [48 - 3 * others]


def test_new_sessions_are_refused_first_and_by_priority(place):
    script = "\n".join(
        (
            ROOM,
            "print(room(home, false, 2), room(home), room(home, false, -2), room(home, true))",
            "for _, one in ipairs(names) do conn[one] = 999 end",
            'print((choose("1")), (choose("1", true)), (choose(nil)))',
        )
    )
    printed = lua(place, script, Queueing(within_slo={"demo": 8}), limit=8)
    low, normal, high = (
        FACTS["priorities"][name]["share"] * 8 for name in ("low", "normal", "high")
    )
    assert list(map(float, printed[:4])) == [low, normal, high, FACTS["running"] * 8]
    assert printed[4:] == ["-"] * 3


def test_late_first_tokens_lower_the_limit_and_timely_ones_raise_it_within_bounds(place):
    script = "\n".join(
        (
            ROOM,
            "print(room(home))",
            "conn[home] = 40; tokens(3, 2); print(room(home))",
            "conn[home] = 40; tokens(3, 1); print(room(home))",
            "late(); print(room(home))",
            "conn[home] = 10; tokens(0.1, 40); print(room(home))",
            "conn[home] = 10; tokens(0.1, 100); conn[home] = 20; tokens(0.1, 700)",
            "conn[home] = 200; tokens(0.1, 20000); print(room(home))",
        )
    )
    printed = list(map(int, lua(place, script)))
    # Two of ten are late by chance; then a part of what was there, the least, more, as shipped.
    least, more = FACTS["least"], math.ceil(FACTS["least"] + 40 * FACTS["up"])
    assert printed == [SHIPPED, SHIPPED, math.ceil(41 * FACTS["down"]), least, more, SHIPPED]
    known = replace(TIMED, within_slo={"demo": 24})
    assert list(map(int, lua(place, script, known, limit=24)))[0::5] == [24, 24]
    # Nothing is measured: nothing moves.
    assert set(lua(place, script, UNLIMITED)) == {str(SHIPPED)}


# New sessions at one replica that always has the least requests, until one more is refused.
BURST = f"""
function burst()
    others(999)
    for count = 0, 999 do
        conn[home] = {FACTS["least"]}
        if choose("1") ~= home then return count end
    end
    return 999
end
"""


def test_sessions_that_think_take_the_places_of_those_after_them(place):
    """They come back together: a wave that was let in when the one before ended was late."""
    least, recent = FACTS["least"], FACTS["recent"]
    low = f"{ROOM}{BURST} others(99); conn[home] = 20; tokens(3, 99); now = now + 50; "
    script = f"""{low} print(burst(), burst(), (choose("1", true)) == home)
    conn[home] = {least - 1}; print((choose("1")) == home)
    """
    first, next_, runs, idle = lua(place, script)
    # What is long ago has no part; what is just now has all, though it was answered.
    assert int(first) > 2 * least
    assert int(next_) == 0
    # One that runs is not kept from its replica, nor is anyone from one that is idle.
    assert (runs, idle) == ("true", "true")
    # Calls that compute no prompt are none of it.
    calls = 'for _ = 1, 99 do choose("1", nil, nil, "/v1/models") end'
    assert lua(place, f"{low} {calls}; print(burst())") == [first]
    # A part of a second counts.
    script = "home = choose('1'); now = now + 0.5; choose('1')"
    script += "; for name, value in pairs(process) do"
    script += " if name:match('_recent$') then print(value & 0x3fffff) end end"
    assert lua(place, script) == [f"{1000 * (1 + math.exp(-0.5 / recent)):.0f}"]
    # A limit that no first token lowered counts requests alone.
    script = f"{ROOM}{BURST} print(burst())"
    assert lua(place, script, replace(TIMED, within_slo={"demo": 9})) == ["999"]


def test_a_limit_without_first_tokens_is_forgotten(place):
    script = f"{ROOM} late(); print(room(home))"
    script += f"; now = now + {FACTS['forget'] + 1}; print(room(home))"
    assert lua(place, script) == [str(FACTS["least"]), str(SHIPPED)]


def test_one_that_was_never_late_takes_what_another_may_not(place):
    """The limit of one alone was lowered; the others have none."""
    script = "late(); others(0); conn[home] = 4"
    script += '; print((choose("1")), home)'
    taken, home = lua(place, f"{ROOM} {script}")
    assert taken.startswith("host-")
    assert taken != home


def test_replicas_that_are_down_are_no_overload(place):
    script = (
        ROOM
        + 'others(99); conn[home] = 20; tokens(3, 99); up = 0; print((choose("1")), (choose(nil)))'
    )
    assert lua(place, script) == ["nil", "nil"]


# Where most is good without a limit: engines of chooser.lua serve 36 a second in time.
KNEE = 36


def simulated(place, times, seed, queueing=None, seconds=400):
    """Return what is good a second, the p90 of first tokens and the share of chats lost."""
    script = f"RATE, SEED, SECONDS, LIMIT = {times * KNEE}, {seed}, {seconds}, {SHIPPED}\n"
    script += (SUPPORT / "overload.lua").read_text()
    return list(map(float, lua(place, script, queueing, replicas=8)))


def test_beyond_the_knee_what_is_let_in_is_served_in_time(place):
    runs = [simulated(place, 3, seed, seconds=200) for seed in (1, 2, 3)]
    good, p90, lost = zip(*runs, strict=True)
    assert mean(good) >= 0.9 * KNEE
    assert max(p90) <= 2
    assert max(lost) <= 0.05


@pytest.mark.night
def test_what_is_good_stays_as_it_is_at_the_knee(place):
    """The means of sixteen seeds; a run alone differs by a tenth from another."""
    seeds = range(1, 17)

    def means(times, queueing=None):
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(simulated, place / str(n), times, n, queueing) for n in seeds]
        return [mean(column) for column in zip(*(run.result() for run in runs), strict=True)]

    knee = means(1, UNLIMITED)[0]
    for times in (1.5, 3):
        without, (good, p90, lost) = means(times, UNLIMITED)[0], means(times)
        print(f"{times} x the knee: {good:.1f} good/s of {knee:.1f}, without a limit {without:.1f}")
        assert without < 0.1 * knee
        assert good >= 0.95 * knee
        assert p90 <= 2
        assert lost <= 0.05
    for times in (0.9, 1):
        without, good = means(times, UNLIMITED)[0], means(times)[0]
        print(f"{times} x the knee: {good:.1f} good/s, without a limit {without:.1f}")
        assert good >= 0.98 * without


def test_a_full_replica_refuses_new_sessions_and_keeps_those_that_run(place):
    """One place: what runs waits for it by priority, what is new gets a time to come back."""
    keys = tuple(
        ApiKey(name, hashlib.sha256(name.encode()).hexdigest(), priority=name)
        for name in ("high", "normal", "low")
    )
    settings = RouterSettings(
        keys=keys,
        health=QUICK,
        queueing=Queueing(within_slo={"demo": 1}, ttft_seconds={"demo": 20}),
    )

    def headers(key, session):
        return {"Authorization": f"Bearer {key}", "X-Session-Id": session}

    async def scenario():
        async with serving(place, 1, 1, settings) as ([replica], [router]):
            client, begun = Client(router.port), []
            for key in ("low", "normal"):
                answer = await client.ask({"chunks": 1}, headers(key, "runs"))
                assert answer.status == 200
            holder = Client(router.port)
            await holder.send({"seconds": 30}, headers("high", "holds"))
            await router.until(lambda: replica.running == 1)

            async def waits(key, session):
                one = Client(router.port)
                answer = await one.ask({}, headers(key, session))
                begun.append((key, session, answer.status))
                one.close()

            async def queued():
                [server] = await router.servers()
                return int(server["qcur"])

            tasks = []
            waiting = [("high", "new"), ("low", "runs"), ("normal", "runs")]
            for number, (key, session) in enumerate(waiting, 1):
                tasks.append(asyncio.create_task(waits(key, session)))
                await router.until(lambda number=number: is_(queued(), number))
            refused = [await client.ask({}, headers("normal", f"new-{n}")) for n in range(24)]
            holder.close()
            await asyncio.gather(*tasks)
            client.close()
            backend = {one["svname"]: one for one in await router.statistics()}["BACKEND"]
            return begun, refused, int(backend["dreq"])

    begun, refused, denied = asyncio.run(scenario())
    assert begun == [("high", "new", 200), ("normal", "runs", 200), ("low", "runs", 200)]
    assert {(one.status, one.error) for one in refused} == {(429, "engine_overloaded")}
    waits = {int(one.headers["retry-after"]) for one in refused}
    assert len(waits) > 1
    assert waits <= {2, 3, 4}
    assert denied == len(refused)


async def is_(counted, number):
    return await counted == number


def test_first_tokens_are_measured_where_headers_come_at_once(place):
    """A stream's headers are here at once; its first token is late, and the limit falls.

    Those that are cut before it are none that came in time, or a fifth would not be late.
    """
    settings = RouterSettings(
        health=QUICK, queueing=Queueing(ttft_seconds={"demo": 0.1}), threads=1
    )

    async def scenario():
        async with serving(place, 1, 8, settings) as (_replicas, [router]):

            async def ask(number, path="/v1/completions", **body):
                one = Client(router.port)
                answer = await one.ask(body, {"X-Session-Id": f"s{number}"}, path)
                one.close()
                return answer.status

            # Each chunk comes after its part of the time.
            early = []
            for _round in range(4):
                early.append(await ask(0, seconds=0.2, chunks=1))
                cut = [await ask(0, cut=True, chunks=1) for _number in range(4)]
                assert set(cut) == {0}
            late = await asyncio.gather(*(ask(n, seconds=1, chunks=1) for n in range(100, 108)))
            # One that runs is served all the same.
            return early, sorted(late), await ask(0, seconds=0.02, chunks=1)

    early, late, runs = asyncio.run(scenario())
    assert set(early) == {200}
    # Eight new ones at once are more than the least, which a slow machine may have come to.
    served = late.count(200)
    assert served <= FACTS["least"]
    assert runs == 200
    assert late == [200] * served + [429] * (8 - served)
