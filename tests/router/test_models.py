# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One port for all models, with a real HAProxy: the model that a request names decides."""

import asyncio
import contextlib
import hashlib
import json
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    Queueing,
    RouterSettings,
)

from support.replicas import Client, Replica
from support.router.haproxy import HAProxy, free_ports, pool_of
from support.scenario import QUICK

CHAT, FORM = "/v1/chat/completions", "/v1/audio/transcriptions"
SETTINGS = RouterSettings(health=QUICK)
# What stands before the model in the requests of many clients; its quotes are escaped.
MESSAGE = {"role": "user", "content": '"model":"org/b" say \\"hi\\"'}
NESTED = {"input": {"model": "sonnet"}, "role": "user", "content": "x" * 300}
MISSING, UNKNOWN = (400, "missing_required_parameter"), (404, "model_not_found")
A, B = (200, "a"), (200, "b")


@contextlib.asynccontextmanager
async def two_models(place, settings=SETTINGS, concurrency=1000):
    """Have deployment a with org/a and its alias, and b with org/b, which takes images."""
    replicas = [await Replica(name).start() for name in "ab"]
    settings = replace(settings, shared_port=free_ports(1)[0])
    pools = [
        replace(
            pool_of([replica.port], concurrency, deployment=replica.name),
            served=(f"org/{replica.name}", f"alias-{replica.name}"),
            images=replica.name == "b",
        )
        for replica in replicas
    ]
    router = HAProxy(place / "r", pools, settings)
    try:
        yield replicas, await router.start()
    finally:
        router.stop()
        for replica in replicas:
            await replica.kill()
        for _turn in range(3):
            await asyncio.sleep(0)


async def until_down(router, count):
    """Wait until so many servers are down; one that begins to fail is not yet."""

    async def down():
        return sum(one["status"] == "DOWN" for one in await router.servers()) == count

    await router.until(down)


async def until_running(router, backend, count):
    """Wait until a backend has so many requests, in work and in the queue."""

    async def there():
        rows = {(one["pxname"], one["svname"]): one for one in await router.statistics()}
        return rows[backend, "BACKEND"]["scur"] == str(count)

    await router.until(there)


def chat(**fields):
    return CHAT, json.dumps(fields).encode()


def form(*parts, mark="xyz"):
    lines = "".join(
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts
    )
    return FORM, f"{lines}--{mark}--\r\n".encode()


REQUESTS = {
    "first": (chat(model="org/a", messages=[]), A),
    "the other": (chat(model="org/b", messages=[]), B),
    "alias": (chat(model="alias-b"), B),
    "messages before it": (chat(messages=[MESSAGE] * 50, model="org/a"), A),
    "a megabyte before it": (
        chat(messages=[{"role": "user", "content": "x" * 1_000_000}], model="org/a"),
        A,
    ),
    "an image before it": (chat(messages=[{"content": "A" * 20_000_000}], model="org/b"), B),
    "all quotes before it": (chat(messages=[MESSAGE] * 30_000, model="org/a", tools=[]), A),
    "too much, others' names": (chat(messages=[NESTED] * 3000, model="org/a", tools=[NESTED]), A),
    "too much, two models": (
        chat(messages=[NESTED] * 3000, x={"model": "org/b"}, model="org/a"),
        MISSING,
    ),
    "too much, unknown": (chat(messages=[MESSAGE] * 30_000, model="org/c"), UNKNOWN),
    "nested and its own": (chat(messages=[{"model": "org/b"}], model="org/a"), A),
    "nested alone": (chat(messages=[{"model": "org/b"}]), MISSING),
    "as a value": (chat(x="model", model="org/a"), A),
    "spaces": ((CHAT, b' {\n "model" :\t"org/a" }'), A),
    "escaped slash": ((CHAT, b'{"model":"org\\/a"}'), A),
    "escaped letters": ((CHAT, b'{"model":"\\u006frg\\u002Fa"}'), A),
    "twice": ((CHAT, b'{"model":"org/a","model":"org/a"}'), A),
    "unknown": (chat(model="org/c"), UNKNOWN),
    "a deployment's name": (chat(model="a"), UNKNOWN),
    "two words": (chat(model="org/a org/b"), UNKNOWN),
    "a quote": (chat(model='org/a"'), UNKNOWN),
    "long": (chat(model="a" * 100_000), UNKNOWN),
    "a name cut to a served one": (chat(model="org/a" + " " * 600), UNKNOWN),
    "a number": (chat(model=5), MISSING),
    "null": (chat(model=None), MISSING),
    "empty": (chat(model=""), MISSING),
    "none": (chat(messages=[MESSAGE]), MISSING),
    "no body": ((CHAT, b""), MISSING),
    "a list": ((CHAT, b'["model"]'), MISSING),
    "a control character": ((CHAT, b'{"model":"org\n/a"}'), MISSING),
    "no JSON": ((CHAT, b"model=org/a"), MISSING),
    "completions": (("/v1/completions", b'{"model":"org/a"}'), A),
    "Responses": (("/v1/responses", b'{"model":"org/b"}'), B),
    "Anthropic": (("/v1/messages", b'{"max_tokens":9,"messages":[],"model":"org/b"}'), B),
    "count_tokens": (("/v1/messages/count_tokens", b'{"model":"org/a"}'), A),
    "embeddings": (("/v1/embeddings", b'{"input":"x","model":"alias-a"}'), A),
    "form": (form(("model", "org/a"), ("file", "RIFF")), A),
    "form, model last": (form(("file", 'RIFF name="model"\r\n\r\norg/a'), ("model", "org/b")), B),
    "form without": (form(("file", "RIFF")), MISSING),
    "form, empty part": (form(("language", ""), ("model", "org/c")), UNKNOWN),
    "a path of no client": (("/metrics", b'{"model":"org/a"}'), (404, "unknown_url")),
}
# 7 MB each: what takes the square of a body's length would take minutes.
MANY = 7_000_000
HOSTILE = {
    "no model": chat(x="x" * MANY),
    "a megabyte without": chat(messages=[MESSAGE] * 15_000),
    "brackets": (CHAT, b'{"a":' + b"[" * MANY),
    "closing brackets": (CHAT, b'{"a":' + b"]" * MANY),
    "quotes": (CHAT, b"{" + b'"' * MANY),
    "names": (CHAT, b"{" + b'"model"' * (MANY // 7)),
    "names of objects": (CHAT, b"{" + b'"model":{' * (MANY // 9)),
    "backslashes": (CHAT, b'{"a":"' + b"\\" * MANY),
    "escaped quotes": (CHAT, b'{"a":"' + b'\\"' * (MANY // 2)),
    "many spaces": (CHAT, b'{"model"' + b" " * MANY),
    "spaces alone": (CHAT, b" " * MANY),
    "commas": (CHAT, b"{" + b"," * MANY),
    "members": (CHAT, b"{" + b'"a":1,' * (MANY // 6)),
    "numbers": (CHAT, b'{"a":[' + b"1," * (MANY // 2)),
    "one number": (CHAT, b'{"a":' + b"1" * MANY),
    "open string": (CHAT, b'{"model":"' + b"a" * MANY),
    "form of returns": (FORM, b"--x\r\n\r\n\r\n" + b"\r\n--" * (MANY // 4)),
    "form of parts": (FORM, b"--x\r\n\r\n\r\n" * (MANY // 9)),
    "form with a long mark": (FORM, b"--" + b"-" * MANY),
}


def test_the_model_decides_which_deployment_answers(place):
    async def scenario():
        async with two_models(place) as (_replicas, router):
            results = {}
            for name, ((path, body), _expected) in REQUESTS.items():
                answer = await Client(router.settings.shared_port).ask(body, path=path)
                found = answer.replica if answer.status == 200 else answer.error
                results[name] = (answer.status, found)
            own = [await Client(pool.port).ask({}) for pool in router.pools]
            return results, [answer.replica for answer in own]

    results, own = asyncio.run(scenario())
    assert results == {name: expected for name, (_request, expected) in REQUESTS.items()}
    # At a deployment's own port a request need not name a model.
    assert own == ["a", "b"]


def test_no_body_costs_more_than_its_length(place):
    async def scenario():
        async with two_models(place) as (replicas, router):
            answers = {}
            for name, (path, body) in HOSTILE.items():
                async with asyncio.timeout(60):
                    answer = await Client(router.settings.shared_port).ask(body, path=path)
                answers[name] = (answer.status, answer.error)
                print(f"{name}: {answer.seconds * 1000:.0f} ms")
            return answers, sum(sum(replica.seen.values()) for replica in replicas)

    answers, seen = asyncio.run(scenario())
    # A string without an end may be the beginning of any name.
    assert answers == {name: MISSING for name in HOSTILE} | {"open string": UNKNOWN}
    assert seen == 0


def test_the_errors_are_in_the_shape_of_openais(place):
    async def scenario():
        async with two_models(place) as (_replicas, router):
            client = Client(router.settings.shared_port)
            return [(await client.ask(body)).body for body in ({}, {"model": "x"})]

    missing, unknown = (json.loads(body)["error"] for body in asyncio.run(scenario()))
    for error in (missing, unknown):
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["type"], error["param"]) == ("invalid_request_error", "model")


def test_models_are_listed_while_a_replica_serves_them(place):
    async def scenario():
        async with two_models(place) as (replicas, router):
            port = router.settings.shared_port
            before = await Client(port).ask(path="/v1/models")
            replicas[0].healthy = False
            await until_down(router, 1)
            after = await Client(port).ask(path="/v1/models")
            gone = await Client(port).ask({"model": "org/a"})
            there = await Client(port).ask({"model": "org/b"})
            healthy = await Client(port).ask(path="/health")
            replicas[1].healthy = False
            await until_down(router, 2)
            none = [await Client(port).ask(path=path) for path in ("/health", "/v1/models")]
            return before, after, gone, there, healthy, none

    before, after, gone, there, healthy, none = asyncio.run(scenario())
    listed = json.loads(before.body)
    assert listed["object"] == "list"
    assert [entry["id"] for entry in listed["data"]] == ["org/a", "alias-a", "org/b", "alias-b"]
    for entry in listed["data"]:
        assert entry.keys() == {"id", "object", "created", "owned_by"}
        assert entry["object"] == "model"
        assert entry["created"] > 1_700_000_000
    assert [entry["id"] for entry in json.loads(after.body)["data"]] == ["org/b", "alias-b"]
    assert (gone.status, gone.error) == (503, "no_replica")
    assert (there.status, healthy.status) == (200, 200)
    assert [(answer.status, answer.error) for answer in none] == [(503, "no_replica")] * 2


KEYS = {name: f"sk-{name}-0123456789abcdef" for name in ("alice", "bob")}
KEYED = replace(
    SETTINGS,
    keys=tuple(
        ApiKey(name, hashlib.sha256(key.encode()).hexdigest(), 40 if name == "bob" else None)
        for name, key in KEYS.items()
    ),
    queueing=Queueing(per_replica=4),
)


def test_all_that_protects_a_deployments_own_port_protects_it_here(place):
    headers = {name: {"Authorization": f"Bearer {key}"} for name, key in KEYS.items()}

    async def scenario():
        async with two_models(place, KEYED, concurrency=2) as (replicas, router):
            router.pools = (router.pools[0], replace(router.pools[1], engine_key=True))
            router.write({"b": "engine-key"})
            await router.reload()
            await router.until_up(2)
            port = router.settings.shared_port

            async def ask(model, key="alice", at=port, path=CHAT, **fields):
                body = {"model": model, "messages": [MESSAGE], **fields}
                return await Client(at).ask(body, headers.get(key), path)

            answers = {
                "no key": await ask("org/a", key=None),
                "no key, models": await Client(port).ask(path="/v1/models"),
                "unknown": await ask("org/c"),
                "a": await ask("org/a"),
                "a, own port": await ask("org/a", at=router.pools[0].port),
                "b": await ask("org/b"),
                # 8 MiB, where no images are taken
                "large for a": await ask("org/a", x="x" * 9_000_000),
                "large for b": await ask("org/b", x="x" * 9_000_000),
                "headers": await Client(port).ask({}, headers["alice"] | {"X-Long": "x" * 20_000}),
            }
            held = [Client(port) for _number in range(4)]
            for client in held:
                await client.send({"model": "org/a", "seconds": 60}, headers["alice"])
            await until_running(router, "a", 4)
            answers["share of a"] = await ask("org/a")
            answers["share of a, own port"] = await ask("org/a", at=router.pools[0].port)
            answers["share of b"] = await ask("org/b")
            bobs = [Client(port) for _number in range(2)]
            for client in bobs:
                await client.send({"model": "org/a", "seconds": 60}, headers["bob"])
            await until_running(router, "a", 6)
            answers["full"] = await ask("org/a", "bob")
            answers["full, own port"] = await ask("org/a", "bob", router.pools[0].port)
            answers["not b"] = await ask("org/b", "bob")
            for client in (*held, *bobs):
                client.close()
            many = [await ask("org/c", "bob") for _number in range(45)]
            return answers, many, replicas, router.entries()

    answers, many, replicas, entries = asyncio.run(scenario())
    results = {
        name: answer.status if answer.status == 200 else (answer.status, answer.error)
        for name, answer in answers.items()
    }
    assert results == {
        "no key": (401, "invalid_api_key"),
        "no key, models": (401, "invalid_api_key"),
        "unknown": UNKNOWN,
        "a": 200,
        "a, own port": 200,
        "b": 200,
        "large for a": (413, "too_large"),
        "large for b": 200,
        "headers": (431, "headers_too_large"),
        "share of a": (429, "too_many_requests"),
        "share of a, own port": (429, "too_many_requests"),
        "share of b": 200,
        "full": (429, "engine_overloaded"),
        "full, own port": (429, "engine_overloaded"),
        "not b": 200,
    }
    assert {(answer.status, answer.error) for answer in many} == {
        UNKNOWN,
        (429, "rate_limit_exceeded"),
    }
    # One session at both ports; the client's key stays here, and an engine gets its own.
    first, second = replicas[0].headers[:2]
    assert first["x-apiary-session"] == second["x-apiary-session"]
    assert "authorization" not in first
    assert replicas[1].headers[0]["authorization"] == "Bearer engine-key"
    assert {"-", "a", "b"} == {entry["deployment"] for entry in entries}


def test_connections_of_this_port_count_with_those_of_the_others(place):
    async def scenario():
        async with two_models(place) as (replicas, router):
            router.settings = replace(router.settings, connections=100)
            router.write()
            await router.restart()
            ports = (router.settings.shared_port, router.pools[0].port)
            held = [Client(ports[at % 2], f"127.0.0.{2 + at // 20}") for at in range(100)]
            for client in held:
                await client.send({"model": "org/a", "seconds": 60})
            await router.until(lambda: replicas[0].running == 100)
            refused = [await Client(port).ask({"model": "org/b"}) for port in ports]
            for client in held:
                client.close()
            await router.until(lambda: replicas[0].running == 0)
            return refused

    refused = asyncio.run(scenario())
    assert [(one.status, one.error) for one in refused] == [(429, "router_overloaded")] * 2
