# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The session that a real HAProxy finds in a request of which no client says it."""

import asyncio
import json
import random
import re
import urllib.request
from collections import Counter, OrderedDict

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import trace
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    RouterSettings,
)

from support.replicas import Client
from support.scenario import QUICK, serving

CHAT, RESPONSES, ANTHROPIC = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COMPLETIONS = "/v1/completions"
USER = {"role": "user", "content": 'say "hi" \\'}
LATER = [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "again"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "be brief"}
MARK = {"cache_control": {"type": "ephemeral"}}
SETTINGS = RouterSettings(health=QUICK)


def sessions(place, asked, settings=SETTINGS):
    """Return the session of each (path, body, headers) as its replica is given it."""

    async def scenario():
        async with serving(place, 1, settings=settings) as ([replica], [router]):
            client = Client(router.port)
            for path, body, headers in asked:
                answer = await client.ask(body, headers, path)
                assert answer.status == 200, answer.body
            client.close()
            return [seen.get("x-apiary-session") for seen in replica.headers]

    return asyncio.run(scenario())


def chat(*messages, **fields):
    return CHAT, {"messages": list(messages), **fields}, {}


def blocks(**mark):
    return {"role": "user", "content": [{"type": "text", "text": "read this", **mark}]}


# Each row is one session: its first turn, and later ones.
SESSIONS = {
    "chat": [chat(SYSTEM, USER), chat(SYSTEM, USER, *LATER), chat(SYSTEM, USER, *LATER * 900)],
    "no system prompt": [chat(USER), chat(USER, *LATER)],
    "another system prompt": [chat({**SYSTEM, "content": "be long"}, USER)],
    "another first message": [chat(SYSTEM, {**USER, "content": "bye"})],
    "content before role": [
        chat({"content": "x", "role": "user"}),
        chat({"content": "x", "role": "user"}, *LATER),
    ],
    "tools first": [
        (CHAT, {"tools": TOOLS, "messages": [USER]}, {}),
        (CHAT, {"tools": TOOLS, "stream": True, "messages": [USER, *LATER]}, {}),
    ],
    "marks that move": [
        chat(blocks(**MARK)),
        chat(blocks(), *LATER),
        (ANTHROPIC, {"max_tokens": 9, "messages": [blocks(), *LATER]}, {}),
    ],
    "an image": [
        chat(
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 400_000}}],
            }
        )
    ]
    * 2,
    "Anthropic": [
        (ANTHROPIC, {"system": [{"type": "text", "text": "s", **MARK}], "messages": [USER]}, {}),
        (
            ANTHROPIC,
            {"system": [{"type": "text", "text": "s", **MARK}], "messages": [USER, *LATER]},
            {},
        ),
    ],
    "Responses, text": [(RESPONSES, {"instructions": "be brief", "input": "hi"}, {})],
    "Responses, items": [
        (RESPONSES, {"instructions": "i", "input": [{"type": "message", **USER}]}, {}),
        (
            RESPONSES,
            {
                "instructions": "i",
                "input": [
                    {"type": "message", **USER},
                    {"type": "function_call", "arguments": "{}"},
                    *LATER,
                ],
            },
            {},
        ),
    ],
    "prompt": [
        (COMPLETIONS, {"prompt": "p" * 4096}, {}),
        (COMPLETIONS, {"prompt": "p" * 9000}, {}),
    ],
    "another prompt": [(COMPLETIONS, {"prompt": "q" * 9000}, {})],
    "a salt": [(CHAT, {"cache_salt": "s", "messages": [USER]}, {})],
    "session_id": [
        chat(USER, session_id="s-1"),
        chat(SYSTEM, *LATER, session_id="s-1"),
        # Behind many names that end alike.
        (CHAT, {f"{n}_id": "s-2" for n in range(40)} | {"session_id": "s-1"}, {}),
        (RESPONSES, {"input": "x", "session_id": "s-1", "prompt_cache_key": "other"}, {}),
        (CHAT, {"messages": [USER]}, {"X-Claude-Code-Session-Id": "s-1"}),
        (CHAT, {"messages": [USER]}, {"Cookie": "session=s-1"}),
        (CHAT, {"messages": [USER], "session_id": "s-2"}, {"X-Session-Id": "s-1"}),
    ],
    "prompt_cache_key": [chat(USER, prompt_cache_key="k"), chat(*LATER, prompt_cache_key="k")],
    "conversation": [
        (RESPONSES, {"conversation": "c", "input": "x"}, {}),
        (RESPONSES, {"input": "y", "conversation": {"id": "c"}}, {}),
    ],
}
# What says nothing that a cache could have.
NONE = [
    (COMPLETIONS, {"prompt": [1, 2, 3]}, {}),
    (COMPLETIONS, {"model": "m", "prompt": [1, 2, 3]}, {}),
    chat(model="m"),
    ("/v1/embeddings", {"input": "x", "session_id": "s"}, {}),
    chat(),
    (CHAT, {"session_id": "", "prompt_cache_key": None, "messages": None}, {}),
    (CHAT, {}, {}),
]  # fmt: skip


def test_every_turn_has_its_sessions_key_and_no_others(place):
    asked = [(name, one) for name, turns in SESSIONS.items() for one in turns]
    found = sessions(place, [one for _name, one in asked])
    keys = {}
    for (name, _one), key in zip(asked, found, strict=True):
        keys.setdefault(name, set()).add(key)
    assert {name: len(seen) for name, seen in keys.items()} == dict.fromkeys(SESSIONS, 1)
    assert None not in set().union(*keys.values())
    assert len(set().union(*keys.values())) == len(SESSIONS)


def test_what_has_no_prompt_has_no_session(place):
    assert sessions(place, NONE) == [None] * len(NONE)


def test_tenants_never_share_a_key(place):
    same = {"messages": [USER]}, {"messages": [USER], "session_id": "s"}
    bearers = ({}, {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}, {"X-Api-Key": "a"})
    found = sessions(place, [(CHAT, body, headers) for body in same for headers in bearers])
    assert len(set(found)) == len(found)


def test_a_key_of_the_router_is_a_tenant(place):
    keys = tuple(
        ApiKey(name, "".join(digest))
        for name, digest in (
            ("a", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
            ("b", "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"),
        )
    )
    asked = [(CHAT, {"messages": [USER]}, {"Authorization": f"Bearer {one}"}) for one in "aba"]
    first, second, third = sessions(place, asked, RouterSettings(keys=keys, health=QUICK))
    assert first == third != second


SIZE = 300_000
HOSTILE = {
    "brackets": b'{"messages":' + b"[" * SIZE,
    "objects": b'{"a":' * (SIZE // 5),
    "backslashes": b'{"messages":[{"role":"user","content":"' + b"\\" * SIZE,
    "quotes": b'{"messages":[' + b'"' * SIZE,
    "escaped quotes": b'{"messages":[{"content":"' + b'\\"' * (SIZE // 2) + b'","role":"user"}]}',
    "spaces": b'{"messages"' + b" " * SIZE + b":1}",
    "commas": b"{" + b"," * SIZE,
    "members": b"{" + b'"a":1,' * (SIZE // 6) + b'"session_id":"s"}',
    "messages": b'{"messages":[' + b'{"role":"system","content":"x"},' * (SIZE // 32),
    "empty messages": b'{"messages":[' + b"{}," * (SIZE // 3),
    "blocks": b'{"messages":[{"content":[' + b"{}," * (SIZE // 3),
    "a name": b'{"' + b"n" * SIZE,
    "zeros": bytes(SIZE),
    "cut at a colon": b'{"messages":',
    "no JSON": b"--boundary\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_worst_body_is_served_all_the_same(place, name):
    """HAProxy would end a walk that takes long, and say so in its log, which `stop` looks at."""

    async def scenario():
        async with serving(place, 1, settings=SETTINGS) as ([replica], [router]):
            client = Client(router.port)
            # A replica of these tests wants JSON; what reaches it counts.
            await client.ask(HOSTILE[name], {}, CHAT)
            client.close()
            return len(replica.headers)

    assert asyncio.run(scenario()) == 1


BLOCK = 256
# 3 MB of text, as field's mock replicas had.
CAPACITY = 3_000_000 // BLOCK


def chats(count, seed):
    """Return requests of interleaved chats as (time, body): 4–16 turns, 200 system prompts."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(200)]
    cards = [draw.randbytes(1500).hex() for _number in range(200)]
    found = []
    while len(found) < count:
        begin = draw.uniform(0, 400)
        messages = [{"role": "system", "content": draw.choices(cards, weights)[0]}]
        for turn in range(draw.randint(4, 16)):
            messages = [*messages, {"role": "user", "content": draw.randbytes(150).hex()}]
            found.append((begin + 20 * turn + draw.uniform(0, 10), {"messages": messages}))
            messages = [*messages, {"role": "assistant", "content": draw.randbytes(200).hex()}]
    return [body for _time, body in sorted(found, key=lambda pair: pair[0])[:count]]


class PrefixCache:
    """Blocks of text that a replica has seen, the least used of which go first."""

    def __init__(self):
        self.blocks = OrderedDict()

    def hits(self, text):
        """Take a prompt; return how many of its blocks were there, and how many it has."""
        keys, hits, key = [], 0, 0
        for at in range(0, len(text) - BLOCK + 1, BLOCK):
            key = hash((key, text[at : at + BLOCK]))
            keys.append(key)
        for key in keys:
            if key not in self.blocks:
                break
            hits += 1
        for key in keys:
            self.blocks[key] = None
            self.blocks.move_to_end(key)
        while len(self.blocks) > CAPACITY:
            self.blocks.popitem(last=False)
        return hits, len(keys)


NIGHT = [pytest.param(seed, 10_000, marks=pytest.mark.night) for seed in (1, 2, 3)]


@pytest.mark.parametrize(("seed", "count"), [(1, 2500), *NIGHT])
def test_chats_without_any_key_find_their_cache(place, seed, count):
    """As review/field.md 2.1: 0.58 by the fewest requests, 0.86 where clients send keys."""
    bodies = chats(count, seed)

    async def scenario():
        caches = {f"host-{index:02}-0": PrefixCache() for index in range(8)}
        got, seen = Counter(), [0, 0]
        waiting = bodies[::-1]
        async with serving(place, 8, 52, SETTINGS) as (_, [router]):

            async def client():
                one = Client(router.port)
                while waiting:
                    body = waiting.pop()
                    answer = await one.ask({**body, "seconds": 0.02}, {}, CHAT)
                    hits, blocks = caches[answer.replica].hits(json.dumps(body["messages"]))
                    got[answer.replica] += 1
                    seen[0] += hits
                    seen[1] += blocks
                one.close()

            await asyncio.gather(*(client() for _number in range(64)))
        return seen[0] / seen[1], max(got.values()) * 8 / sum(got.values())

    hit, uneven = asyncio.run(scenario())
    print(f"seed {seed}, {count} requests: prefix hit {hit:.3f}, busiest/mean {uneven:.2f}")
    assert hit >= 0.85
    # Of some 30 chats for each replica the busiest has a third more than the mean by chance alone.
    assert uneven <= (1.2 if count == 10_000 else 1.5)


def test_a_body_that_a_key_was_read_of_goes_on_as_it_came(place):
    path, body, headers = chat(USER, cache_salt="s")

    async def scenario():
        async with serving(place, 1, settings=SETTINGS) as ([replica], [router]):
            answer = await Client(router.port).ask(body, headers, path)
            return answer.status, replica.body

    assert asyncio.run(scenario()) == (200, json.dumps(body).encode())


def test_requests_are_counted_and_logged_by_the_kind_of_their_key(place):
    kinds = [
        ("header", (*chat(USER)[:2], {"X-Session-Id": "s"})),
        ("header", (*chat(USER)[:2], {"Cookie": "session=s"})),
        ("body", chat(USER, session_id="s")),
        ("prompt", chat(USER)),
        ("-", ("/v1/embeddings", {"input": "x"}, {})),
    ]

    async def scenario():
        async with serving(place, 2, settings=SETTINGS, routers=2) as (_, routers):
            for router in routers:
                for _kind, (path, body, headers) in kinds * 2:
                    client = Client(router.port)
                    assert (await client.ask(body, headers, path)).status == 200
                    client.close()
            asked = urllib.request.urlopen
            port = routers[0].settings.admin_port
            counts = await asyncio.to_thread(asked, f"http://127.0.0.1:{port}/counts", timeout=9)
        return counts.read().decode(), [router.entries() for router in routers]

    counts, logs = asyncio.run(scenario())
    series = 'apiary_router_requests_total{proxy="demo",key="%s",at="%s"} %d\n'
    for kind, own in (("header", 4), ("body", 2), ("prompt", 2), ("none", 0), ("address", 0)):
        assert series % (kind, "own", own) in counts
        assert series % (kind, "other", 2 * (kind == "none")) in counts
    # Such a log is a load: of two sessions, without what has no prompt.
    traced = trace("x", map(json.dumps, logs[0])).trace
    assert sorted(Counter(session for session, *_rest in traced).values()) == [2, 6]
    marks = []
    for log in logs:
        # Lines of threads come in any order.
        told = Counter((line["session_by"], line["session"]) for line in log)
        own = {kind: mark for kind, mark in told}
        # The header's, the cookie's and the body's are one session.
        assert own["header"] == own["body"] != own["prompt"]
        assert own["-"] == "-"
        assert re.fullmatch("[0-9a-f]{16}", own["header"])
        expected = Counter(kind for kind, _request in kinds * 2)
        assert told == Counter({(kind, own[kind]): count for kind, count in expected.items()})
        marks.append(own["header"])
    # Two routers have two salts: what one says tells nothing of the other's.
    assert marks[0] != marks[1]
