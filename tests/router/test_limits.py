# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one client sends costs the others nothing, with a real HAProxy."""

import asyncio
import contextlib
import hashlib
import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    Limits,
    Queueing,
    RouterSettings,
)

from support.replicas import Answer, Client, read_head
from support.router.haproxy import pool_of
from support.scenario import QUICK, serving

KEYS = {name: f"sk-{name}-0123456789abcdef" for name in ("alice", "bob", "carol")}
# More than HAProxy's own buffer, which is all that it awaits by default.
PART = b"x" * 70_000


def limited(**limits):
    return RouterSettings(limits=Limits(**limits), health=QUICK)


class Slow:
    """A client that sends the head of a request, a part of its body, and then nothing."""

    def __init__(self, port, head, part=b"", source="127.0.0.1"):
        self.port, self.source = port, source
        self.sent = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + part

    async def start(self):
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(self.source, 0)
        )
        self.writer.write(self.sent)
        await self.writer.drain()
        return self

    async def answer(self):
        async with asyncio.timeout(20):
            line, headers = await read_head(self.reader)
            body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(int(line.split()[1]), headers, body)

    async def end(self):
        """Hang up, and wait until that is done."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


ATTACKS = {
    "no body": ("Content-Length: 100", b""),
    "most of a body": (f"Content-Length: {len(PART) + 1}", PART),
    "chunks without an end": ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(PART), PART)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_body_that_does_not_come_holds_no_replica(place, attack):
    async def scenario():
        settings = limited(body_seconds=300)
        async with serving(place, 2, concurrency=2, settings=settings) as (replicas, [router]):
            slow = [await Slow(router.port, *ATTACKS[attack]).start() for _number in range(60)]

            async def all_wait():
                rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
                assert rows["demo", "BACKEND"]["scur"] == "0"
                return int(rows["apiary-in-demo", "FRONTEND"]["scur"]) >= 60

            await router.until(all_wait)
            client = Client(router.port)
            answers = [await client.ask({}) for _number in range(20)]
            client.close()
            for one in slow:
                await one.end()
            return answers, sum(sum(one.seen.values()) for one in replicas)

    answers, seen = asyncio.run(scenario())
    assert [answer.status for answer in answers] == [200] * 20
    assert seen == 20


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_body_that_is_late_is_408_and_one_that_ends_early_reaches_nobody(place, attack):
    async def scenario():
        async with serving(place, 1, settings=limited(body_seconds=1)) as ([replica], [router]):
            late = await Slow(router.port, *ATTACKS[attack]).start()
            broken = await Slow(router.port, *ATTACKS[attack]).start()
            broken.writer.write_eof()
            answer = await late.answer()
            async with asyncio.timeout(20):
                await broken.reader.read()
            for one in (late, broken):
                await one.end()
            return answer, replica.seen

    answer, seen = asyncio.run(scenario())
    assert (answer.status, answer.error) == (408, "request_timeout")
    assert not seen


def test_a_body_that_comes_in_parts_is_one_request_also_over_a_reload(place):
    text = json.dumps({"pad": "x" * 3_000_000}).encode()
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(text[at : at + 999_999]), text[at : at + 999_999])
        for at in range(0, len(text), 999_999)
    )
    bodies = {
        f"Content-Length: {len(text)}": text,
        "Transfer-Encoding: chunked": chunks + b"0\r\n\r\n",
        f"Expect: 100-continue\r\nContent-Length: {len(text)}": text,
    }

    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            begun = [
                await Slow(router.port, head, body[:500_000]).start()
                for head, body in bodies.items()
            ]
            await router.reload()
            answers = []
            for one, body in zip(begun, bodies.values(), strict=True):
                one.writer.write(body[500_000:])
                if b"Expect" in one.sent:
                    line, _headers = await read_head(one.reader)
                    assert line.split()[1] == "100"
                answers.append((await one.answer()).status)
                await one.end()
            return answers, sum(replica.seen.values())

    assert asyncio.run(scenario()) == ([200] * 3, 3)


@pytest.mark.parametrize(
    ("head", "part", "expected"),
    [
        ("Content-Length: 70001", b"x", (413, "too_large")),
        ("Content-Length: 3221225472", PART, (413, "too_large")),
        ("Transfer-Encoding: chunked", b"11171\r\n%s\r\n" % (b"x" * 70001), (413, "too_large")),
        (f"X-Long: {'x' * 20_000}\r\nContent-Length: 2", b"{}", (431, "headers_too_large")),
        ("\r\n".join(f"X-{n}: {'x' * 1000}" for n in range(90)), b"", (431, "headers_too_large")),
    ],
)
def test_what_is_too_large_is_refused_at_once_and_reaches_nobody(place, head, part, expected):
    async def scenario():
        settings = limited(body_bytes=70_000, body_seconds=300)
        async with serving(place, 1, settings=settings) as ([replica], [router]):
            one = await Slow(router.port, head, part).start()
            answer = await one.answer()
            await one.end()
            client = Client(router.port)
            body = json.dumps({"pad": "x" * 69_989}).encode()
            assert len(body) == 70_000
            largest = await client.ask(body)
            client.close()
            return (answer.status, answer.error), largest.status, sum(replica.seen.values())

    assert asyncio.run(scenario()) == (expected, 200, 1)


def test_one_address_cannot_have_all_connections(place):
    async def scenario():
        async with serving(place, 1, settings=limited(connections_per_source=5)) as (_r, [router]):

            def slow():
                return Slow(router.port, "Content-Length: 9", source="127.0.0.2")

            held = [await slow().start() for _number in range(5)]

            async def all_count():
                return "conn_cur=5" in await router.command("show table apiary-sources")

            # Another of its threads may take the sixth before it has counted these.
            await router.until(all_count)
            # At once, or when it has sent what nobody reads.
            with contextlib.suppress(ConnectionError):
                more = await slow().start()
                assert await more.reader.read() == b""
                await more.end()
            client, other = Client(router.port), Client(router.port, "127.0.0.2")
            statuses = [(await client.ask({})).status, (await other.ask({})).status]
            await held.pop().end()

            async def is_let_in():
                return (await other.ask({})).status == 200

            await router.until(is_let_in)
            for one in held:
                await one.end()
            client.close()
            other.close()
            return statuses

    assert asyncio.run(scenario()) == [200, 0]


def test_one_connection_is_one_request_whatever_it_begins_with(place):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings_frame = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"

    async def scenario():
        async with serving(place, 1, settings=limited()) as (_replicas, [router]):
            reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
            writer.write(preface + settings_frame)
            async with asyncio.timeout(20):
                line, _headers = await read_head(reader)
            writer.close()
            return line

    assert asyncio.run(scenario()).startswith("HTTP/1.1 400 ")


def keyed(**concurrent):
    keys = [
        ApiKey(name, hashlib.sha256(key.encode()).hexdigest(), None, concurrent.get(name))
        for name, key in KEYS.items()
    ]
    return RouterSettings(keys=tuple(keys), queueing=Queueing(per_replica=4), health=QUICK)


def test_a_key_leaves_half_of_the_queue_to_the_others(place):
    settings = keyed(carol=1)

    async def scenario():
        async with serving(place, 1, concurrency=2, settings=settings) as (_replicas, [router]):
            headers = {name: {"Authorization": f"Bearer {key}"} for name, key in KEYS.items()}
            clients = [Client(router.port) for _number in range(4)]
            for client in clients:
                await client.send({"seconds": 60}, headers["alice"])

            async def in_work_or_queued(count):
                rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
                return rows["demo", "BACKEND"]["scur"] == str(count)

            await router.until(lambda: in_work_or_queued(4))
            asking = Client(router.port)
            turned_away = await asking.ask({}, headers["alice"])
            others = []
            for name in ("bob", "carol"):
                client = Client(router.port)
                await client.send({}, headers[name])
                others.append(client)
            await router.until(lambda: in_work_or_queued(6))
            second = await asking.ask({}, headers["carol"])
            for client in clients:
                client.close()
            statuses = []
            for client in others:
                answer = Answer()
                await client.receive(answer, 0)
                statuses.append(answer.status)
                client.close()
            asking.close()
            return turned_away, second, statuses

    turned_away, second, statuses = asyncio.run(scenario())
    for answer in (turned_away, second):
        assert (answer.status, answer.error) == (429, "too_many_requests")
        assert answer.headers["retry-after"] in {"2", "3", "4"}
    assert statuses == [200, 200]


def test_what_a_key_has_at_one_deployment_is_no_share_of_anothers(place):
    async def scenario():
        async with serving(place, 1, concurrency=2, settings=keyed()) as ([replica], [router]):
            router.pools = (*router.pools, pool_of([replica.port], 2, deployment="other"))
            router.write()
            await router.reload()
            await router.until_up(2)
            alice = {"Authorization": f"Bearer {KEYS['alice']}"}
            clients = [Client(router.port) for _number in range(4)]
            for client in clients:
                await client.send({"seconds": 60}, alice)

            async def all_are_there():
                rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
                return rows["demo", "BACKEND"]["scur"] == "4"

            await router.until(all_are_there)
            ports = [pool.port for pool in router.pools]
            for port in ports:
                clients.append(Client(port))
            answers = [(await client.ask({}, alice)).status for client in clients[-2:]]
            for client in clients:
                client.close()
            return answers

    assert asyncio.run(scenario()) == [429, 200]


def test_a_router_that_is_full_says_so_and_its_metrics_answer(place):
    async def hold(client):
        # For a moment a health check that was meant for a port's last owner may have a place.
        while (await client.ask({"seconds": 600})).status == 429:
            client.close()

    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            router.settings = replace(router.settings, connections=100)
            router.write()
            await router.restart()
            held = [Client(router.port, f"127.0.0.{2 + at // 20}") for at in range(100)]
            holding = [asyncio.create_task(hold(client)) for client in held]
            await router.until(lambda: replica.running == 100)
            refused = [await Client(router.port).ask() for _number in range(20)]
            healthy = await Client(router.port).ask(path="/health")
            metrics = await Client(router.settings.admin_port).ask(path="/metrics")
            info = await router.command("show info")
            for client in held:
                client.close()
            await asyncio.gather(*holding)
            await router.until(lambda: replica.running == 0)
            return refused, healthy, metrics, info, await Client(router.port).ask()

    refused, healthy, metrics, info, after = asyncio.run(scenario())
    assert {(one.status, one.error) for one in refused} == {(429, "router_overloaded")}
    assert all("retry-after" in one.headers for one in refused)
    assert (healthy.status, metrics.status, after.status) == (200, 200, 200)
    assert "CurrConns: " in info
