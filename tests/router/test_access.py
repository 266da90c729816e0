# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may ask what, how often, and what is written down, with a real HAProxy."""

import asyncio
import hashlib
import ssl
import subprocess
import warnings
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    RouterSettings,
    Tls,
)

from support.replicas import Answer, Client, read_head
from support.scenario import QUICK, serving

ALICE, BOB = "sk-alice-0123456789abcdef", "sk-bob-fedcba9876543210"


def api_key(name, key, rate=None):
    return ApiKey(name, hashlib.sha256(key.encode()).hexdigest(), rate)


KEYED = RouterSettings(keys=(api_key("alice", ALICE), api_key("bob", BOB, 5)), health=QUICK)


async def get(port, path):
    """Ask by GET, which the engine's own paths want."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    line, headers = await read_head(reader)
    answer = Answer(int(line.split()[1]), headers, await reader.read())
    writer.close()
    return answer


def test_only_who_has_a_key_may_ask_and_the_replica_never_sees_it(place):
    async def scenario():
        async with serving(place, 1, settings=KEYED) as ([replica], [router]):
            client = Client(router.port)
            said = [
                await client.ask({}, headers)
                for headers in (
                    {"Authorization": f"Bearer {ALICE}"},
                    {"authorization": f"bearer {BOB}"},
                    {"X-Api-Key": ALICE},
                    {},
                    {"Authorization": "Bearer "},
                    {"Authorization": "Bearer wrong"},
                    {"Authorization": f"Basic {ALICE}"},
                    {"Authorization": ALICE},
                    {"X-Api-Key": "wrong"},
                    {"Authorization": f"Bearer {hashlib.sha256(ALICE.encode()).hexdigest()}"},
                    {"Authorization": f"Bearer {ALICE} "[:-4]},
                )
            ]
            health = await client.ask({}, path="/health")
            client.close()
            files = "".join(
                path.read_text() for path in sorted(place.rglob("*.*")) if path.is_file()
            )
            return said, health, replica.headers, files

    said, health, seen, files = asyncio.run(scenario())
    assert [answer.status for answer in said] == [200, 200, 200] + [401] * 8
    assert len({answer.body for answer in said[3:]}) == 1
    assert said[3].error == "invalid_api_key"
    assert health.status == 200
    assert len(seen) == 3
    assert not any({"authorization", "x-api-key"} & headers.keys() for headers in seen)
    assert ALICE not in files
    assert BOB not in files


def test_engines_with_a_key_of_their_own_get_it_from_the_router(place):
    async def scenario():
        async with serving(place, 1, settings=KEYED) as ([replica], [router]):
            router.pools = (replace(router.pools[0], engine_key=True),)
            router.write({"demo": "engine-key"})
            await router.reload()
            client = Client(router.port)
            status = (await client.ask({}, {"Authorization": f"Bearer {ALICE}"})).status
            client.close()
            return status, replica.headers

    status, [headers] = asyncio.run(scenario())
    assert status == 200
    assert headers["authorization"] == "Bearer engine-key"


def test_a_key_above_its_rate_is_429_and_the_others_are_not(place):
    async def scenario():
        async with serving(place, 1, settings=KEYED) as (_replicas, [router]):
            client = Client(router.port)
            found = {}
            for name, key in (("bob", BOB), ("alice", ALICE)):
                headers = {"Authorization": f"Bearer {key}"}
                found[name] = [await client.ask({}, headers) for _number in range(8)]
            client.close()
            return found

    found = asyncio.run(scenario())
    assert [answer.status for answer in found["bob"]] == [200] * 5 + [429] * 3
    assert found["bob"][-1].error == "rate_limit_exceeded"
    assert found["bob"][-1].headers["retry-after"] in {"2", "3", "4"}
    assert {answer.status for answer in found["alice"]} == {200}


def test_the_log_has_no_prompt_and_no_key_and_every_line_is_json(place):
    secret = "what-nobody-shall-read"  # noqa: S105 - it is planted

    async def scenario():
        async with serving(place, 2, settings=KEYED) as (_replicas, [router]):
            client = Client(router.port)
            headers = {"Authorization": f"Bearer {ALICE}", "X-Session-Id": secret}
            await client.ask({"prompt": secret}, headers)
            await client.ask({"prompt": secret, "status": 500}, headers)
            await client.ask({}, {"Authorization": f"Bearer {secret}"})
            await client.ask({}, headers, path=f'/"\\{{}}?prompt={secret}')
            await client.ask({}, headers | {"X-Request-Id": 'a","x":"b'})
            await client.ask({}, headers | {"X-Request-Id": "mine-1"})
            client.close()
            await router.until(lambda: len(router.entries()) >= 6)
            return router

    router = asyncio.run(scenario())
    entries = router.entries()
    assert len(entries) == 6
    for text in (secret, ALICE, hashlib.sha256(ALICE.encode()).hexdigest()):
        assert text not in "".join(router.log)
    assert [entry["status"] for entry in entries] == [200, 500, 401, 404, 200, 200]
    assert [entry["key"] for entry in entries] == ["alice", "alice", "-", "alice", "alice", "alice"]
    assert entries[3]["path"] == '/"\\{}'
    assert entries[4]["request"] != 'a","x":"b'
    assert entries[5]["request"] == "mine-1"
    assert entries[0]["server"] in ("host-00-0", "host-01-0")
    assert entries[0]["deployment"] == "demo"
    assert entries[0]["bytes_in"] > 0


def test_a_request_has_an_id_at_both_ends(place):
    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            client = Client(router.port)
            told = [
                (await client.ask({}, headers)).headers["x-request-id"]
                for headers in ({}, {}, {"X-Request-Id": "mine"}, {"X-Request-Id": "x" * 200})
            ]
            missing = await client.ask({}, path="/nowhere")
            client.close()
            return told, missing, [headers["x-request-id"] for headers in replica.headers]

    told, missing, seen = asyncio.run(scenario())
    assert told == seen
    assert told[2] == "mine"
    assert len(set(told)) == 4
    assert max(map(len, told)) == 36
    assert missing.headers["x-request-id"]


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/sleep", "/reset_prefix_cache", "/collective_rpc", "/docs", "/load", "/"),
        *("/v1/load_lora_adapter", "/v1/../metrics", "/v1/%2e%2e/metrics", "//v1/models"),
        *("/v1/models/", "/V1/models", "/invocations"),
    ],
)
def test_what_the_engine_has_for_its_operator_is_out_of_reach(place, path):
    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            return await get(router.port, path), replica.headers

    answer, seen = asyncio.run(scenario())
    assert (answer.status, answer.error) == (404, "unknown_url")
    assert seen == []


def test_every_path_for_clients_is_reached(place):
    paths = [*knowledge("router.yml")["paths"]["exact"], "/v1/custom"]
    settings = RouterSettings(paths=("/v1/custom",), health=QUICK)

    async def scenario():
        async with serving(place, 1, settings=settings) as (_replicas, [router]):
            client = Client(router.port)
            found = {path: (await client.ask({}, path=path)).status for path in paths}
            client.close()
            return found

    assert set(asyncio.run(scenario()).values()) == {200}


def test_what_is_no_http_is_a_400_of_haproxy_itself(place):
    """Before a request is one, HAProxy answers by its own page, whatever is configured."""

    async def scenario():
        async with serving(place, 1) as ([replica], [router]):
            reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
            writer.write(b"GET /v1/models\x00 HTTP/1.1\r\n\r\n")
            line, _headers = await read_head(reader)
            writer.close()
            return line, replica.headers

    line, seen = asyncio.run(scenario())
    assert line.split()[1] == "400"
    assert seen == []


def test_metrics_name_every_server(place):
    async def scenario():
        async with serving(place, 2) as (_replicas, [router]):
            admin = router.settings.admin_port
            return [
                await get(admin, path) for path in ("/metrics", "/ready", "/health", "/v1/models")
            ]

    metrics, ready, health, other = asyncio.run(scenario())
    assert b'haproxy_server_status{proxy="demo",server="host-01-0"' in metrics.body
    assert [ready.status, health.status, other.status] == [200, 200, 404]


def test_tls_takes_new_versions_only(place):
    bundle = place / "tls.pem"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run([*request.split(), *names], cwd=place, capture_output=True, check=True)
    parts = [(place / name).read_text() for name in ("certificate.pem", "key.pem")]
    bundle.write_text("".join(parts))
    settings = RouterSettings(tls=Tls(certificate=str(bundle)), health=QUICK)

    async def handshake(port, version):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        if version == ssl.TLSVersion.TLSv1_1:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        line, _headers = await read_head(reader)
        writer.close()
        return line.split()[1]

    async def scenario():
        async with serving(place, 1, settings=settings) as (_replicas, [router]):
            found = []
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                found.append(await handshake(router.port, version))
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await handshake(router.port, ssl.TLSVersion.TLSv1_1)
            return found

    assert asyncio.run(scenario()) == ["200", "200"]
