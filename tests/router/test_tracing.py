# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A request's trace: what the replica is told of it, and the span that the collector gets."""

import asyncio
import contextlib
import json
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)

from support.haproxy import free_ports
from support.otlp import Collector
from support.replicas import Client
from support.scenario import QUICK, serving
from support.tracing import counters, exporting, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOUND = f"00-{TRACE}-{PARENT}-01"
WELL_FORMED = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")
NOWHERE = "http://127.0.0.1:9/v1/traces"


def traced(endpoint=NOWHERE, **more):
    tracing = RouterTracing(endpoint, port=free_ports(1)[0], **more)
    return RouterSettings(health=QUICK, tracing=tracing)


def told(place, asked, settings=None):
    """Ask with each of these headers; return what the replica got and the router's log entries."""

    async def scenario():
        async with serving(place, 1, settings=settings or traced()) as ([replica], [router]):
            client = Client(router.port)
            for number, headers in enumerate(asked, 1):
                assert (await client.ask({}, headers)).status == 200
                # The queue of a datagram socket may be as short as ten.
                await router.until(lambda want=number: len(entries(router)) == want)
            client.close()
            return replica.headers, entries(router)

    return asyncio.run(scenario())


def entries(router):
    lines = [re.sub(r"^<\d+>.*?haproxy\[\d+\]: ", "", line) for line in router.read_log()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_a_clients_trace_goes_on_with_the_routers_span_as_parent(place):
    headers = {"traceparent": SOUND, "tracestate": "vendor=1"}
    [seen], [entry] = told(place, [headers])
    version, trace, span, flags = seen["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert span != PARENT
    assert seen["tracestate"] == "vendor=1"
    assert (entry["trace"], entry["span"], entry["parent"]) == (TRACE, span, PARENT)
    assert entry["sampled"] == "01"


def test_what_a_client_does_not_want_traced_is_not(place):
    [seen], [entry] = told(place, [{"traceparent": f"00-{TRACE}-{PARENT}-00"}])
    assert seen["traceparent"].endswith("-00")
    assert entry["sampled"] == "00"


def test_a_later_version_of_the_header_is_read_as_far_as_it_is_known(place):
    [seen], [entry] = told(place, [{"traceparent": f"cc-{TRACE}-{PARENT}-03-what-comes"}])
    assert seen["traceparent"] == f"00-{TRACE}-{entry['span']}-01"
    assert entry["parent"] == PARENT


MALFORMED = [
    *("", "x", SOUND[:-1], SOUND + "0", SOUND.upper(), SOUND + "-", f" {SOUND}x"),
    *(SOUND.replace("00-", "ff-", 1), SOUND.replace(TRACE, "0" * 32)),
    *(SOUND.replace(PARENT, "0" * 16), SOUND.replace("4bf9", "zbf9"), f"{SOUND},{SOUND}"),
    'a","trace":"b',
    f"{SOUND}\r\ntraceparent: {SOUND}",
]


def test_a_malformed_header_begins_a_new_trace(place):
    asked = [{"traceparent": text, "tracestate": "vendor=1"} for text in MALFORMED]
    seen, said = told(place, [{}, *asked])
    assert all(WELL_FORMED.fullmatch(headers["traceparent"]) for headers in seen)
    traces = {headers["traceparent"].split("-")[1] for headers in seen}
    assert len(traces) == len(seen)
    assert TRACE not in traces
    assert not any("tracestate" in headers for headers in seen)
    assert {entry["parent"] for entry in said} == {"-"}
    assert len({entry["span"] for entry in said}) == len(seen)


def test_a_router_that_trusts_no_client_begins_every_trace(place):
    [seen], [entry] = told(place, [{"traceparent": SOUND}], traced(trust_clients=False))
    assert TRACE not in seen["traceparent"]
    assert entry["parent"] == "-"


@pytest.mark.parametrize(("ratio", "flags"), [(0.0, {"00"}), (1.0, {"01"}), (0.5, {"00", "01"})])
def test_the_share_that_is_traced(place, ratio, flags):
    # That 40 lots of one half are all the same happens once in 10**12.
    seen, _said = told(place, [{}] * 40, traced(ratio=ratio))
    assert {headers["traceparent"][-2:] for headers in seen} == flags


def test_without_tracing_the_client_header_goes_through_as_it_is(place):
    [seen], [entry] = told(place, [{"traceparent": "x"}], RouterSettings(health=QUICK))
    assert seen["traceparent"] == "x"
    assert "trace" not in entry


def test_each_request_is_one_span_of_the_collector(place):
    secret = "what-nobody-shall-read"  # noqa: S105 - it is planted

    async def scenario(collector):
        async with serving(place, 2, settings=traced(collector.url)) as (replicas, [router]):
            with exporting(router, {"Authorization": f"Bearer {secret}"}) as directory:
                client = Client(router.port)
                session = {"X-Session-Id": secret, "X-Request-Id": "mine"}
                await client.ask({"prompt": secret}, {"traceparent": SOUND, **session})
                await client.ask({"status": 500})
                await client.ask({}, path="/nowhere")
                client.close()
                await asyncio.to_thread(until, lambda: len(collector.spans) == 3)
                await asyncio.to_thread(until, lambda: counters(directory))
            text = (directory / "apiary_traces.prom").read_text()
            return replicas, router, text

    with Collector() as collector:
        replicas, router, text = asyncio.run(scenario(collector))
    spans = {span.attributes["http.response.status_code"]: span for span in collector.spans}
    fine, failed, refused = spans[200], spans[500], spans[404]
    assert (fine.trace, fine.parent, fine.kind, fine.status) == (TRACE, PARENT, 2, 0)
    assert fine.name == "POST /v1/completions"
    server = fine.attributes["apiary.server"]
    [replica] = [one for one in replicas if one.name == server]
    [headers] = [head for head in replica.headers if TRACE in head["traceparent"]]
    assert headers["traceparent"] == f"00-{TRACE}-{fine.span}-01"
    assert fine.attributes["apiary.deployment"] == "demo"
    assert fine.attributes["apiary.host"] == server.rpartition("-")[0]
    assert fine.attributes["apiary.replica"] == "0"
    assert fine.attributes["server.port"] == replica.port
    assert fine.attributes["apiary.request_id"] == "mine"
    assert fine.attributes["haproxy.retries"] == 0
    assert re.fullmatch(r"-?\d+", fine.attributes["apiary.session"])
    assert fine.start < fine.end
    assert fine.events[0] == "request received"
    assert fine.events[-1] == "first byte of answer"
    assert (failed.status, failed.attributes["error.type"]) == (2, "500")
    assert (refused.name, refused.status, refused.parent) == ("POST", 0, "")
    assert "apiary.server" not in refused.attributes
    assert fine.resource["service.name"] == "apiary-router"
    # The credential is in the request's headers, and nowhere else; what was asked is nowhere.
    assert collector.received.headers[0]["Authorization"] == f"Bearer {secret}"
    assert secret.encode() not in b"".join(collector.received.bodies)
    assert b"127.0.0.1" not in b"".join(collector.received.bodies).replace(
        b'"server.address","value":{"stringValue":"127.0.0.1"}', b""
    )
    assert 'apiary_trace_spans_total{result="exported"} 3' in text
    assert router.log


def test_a_lost_replica_is_an_error_in_the_trace(place):
    async def scenario(collector):
        async with serving(place, 1, settings=traced(collector.url)) as ([replica], [router]):
            with exporting(router):
                client = Client(router.port)
                asking = asyncio.create_task(client.ask({"seconds": 30}))
                await router.until(lambda: replica.headers)
                await replica.kill()
                answer = await asking
                client.close()
                await asyncio.to_thread(until, lambda: collector.spans)
                return answer

    with Collector() as collector:
        answer = asyncio.run(scenario(collector))
    [span] = collector.spans
    assert answer.status == 502
    assert (span.status, span.attributes["error.type"]) == (2, "502")
    assert span.attributes["haproxy.termination_state"].startswith("S")


def test_a_collector_that_is_away_costs_spans_and_no_request(place):
    async def scenario():
        settings = traced()
        async with serving(place, 1, settings=settings) as (_replicas, [router]):
            limits = {"queue_spans": 10, "batch_spans": 5, "attempts": 1}
            with exporting(router, **limits) as directory:
                client = Client(router.port)
                said = [(await client.ask()).status for _number in range(60)]
                client.close()
                lost = 'apiary_trace_spans_total{result="dropped"}'
                await asyncio.to_thread(until, lambda: counters(directory).get(lost) == 60)
            return said, (directory / "said").read_text()

    said, journal = asyncio.run(scenario())
    assert said == [200] * 60
    # Once a minute, not with every batch.
    assert journal.count("spans dropped") == 1
    assert "ConnectionRefusedError" in journal


def test_without_the_exporter_no_request_waits(place):
    async def scenario():
        async with serving(place, 1, settings=traced()) as (_replicas, [router]):
            client = Client(router.port)
            said = [(await client.ask()).status for _number in range(20)]
            client.close()
            return said

    assert asyncio.run(scenario()) == [200] * 20


def test_what_a_collector_may_take_later_is_sent_again(place):
    async def scenario(collector):
        async with serving(place, 1, settings=traced(collector.url)) as (_replicas, [router]):
            with exporting(router) as directory, contextlib.closing(Client(router.port)) as client:
                await client.ask()
                await asyncio.to_thread(until, lambda: collector.spans)
                done = 'apiary_trace_spans_total{result="exported"}'
                await asyncio.to_thread(until, lambda: counters(directory).get(done) == 1)

    with Collector(answers=[503]) as collector:
        asyncio.run(scenario(collector))
    assert len(collector.spans) == 1


def test_a_service_that_ends_sends_what_it_has(place):
    async def scenario(collector):
        async with serving(place, 1, settings=traced(collector.url)) as (_replicas, [router]):
            with (
                exporting(router, delay_seconds=600),
                contextlib.closing(Client(router.port)) as one,
            ):
                await one.ask()
                await router.until(lambda: entries(router))

    with Collector() as collector:
        asyncio.run(scenario(collector))
    assert len(collector.spans) == 1
