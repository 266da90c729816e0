# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A request's trace: the header that the replica gets, and the id in the log line."""

import asyncio
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)

from support.replicas import Client
from support.scenario import QUICK, serving

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOUND = f"00-{TRACE}-{PARENT}-01"
WELL_FORMED = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")


def traced(**more):
    return RouterSettings(health=QUICK, tracing=RouterTracing(**more))


def told(place, asked, settings=None):
    """Ask with each of these headers; return what the replica got and the router's log entries."""

    async def scenario():
        async with serving(place, 1, settings=settings or traced()) as ([replica], [router]):
            client = Client(router.port)
            for headers in asked:
                assert (await client.ask({}, headers)).status == 200
            await router.until(lambda: len(router.entries()) == len(asked))
            client.close()
            return replica.headers, router.entries()

    return asyncio.run(scenario())


def test_a_clients_trace_goes_on(place):
    headers = {"traceparent": SOUND, "tracestate": "vendor=1"}
    [actual], [entry] = told(place, [headers])
    assert {name: actual[name] for name in headers} == headers
    assert (entry["trace"], entry["sampled"]) == (TRACE, "01")


def test_what_a_client_does_not_want_traced_is_not(place):
    [actual], [entry] = told(place, [{"traceparent": f"00-{TRACE}-{PARENT}-00"}])
    assert actual["traceparent"].endswith("-00")
    assert entry["sampled"] == "00"


def test_a_later_version_of_the_header_goes_on_as_it_is(place):
    later = f"cc-{TRACE}-{PARENT}-03-what-comes"
    [actual], [entry] = told(place, [{"traceparent": later}])
    assert actual["traceparent"] == later
    assert (entry["trace"], entry["sampled"]) == (TRACE, "01")


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
    assert {entry["trace"] for entry in said} == traces


def test_a_router_that_trusts_no_client_begins_every_trace(place):
    [seen], [entry] = told(place, [{"traceparent": SOUND}], traced(trust_clients=False))
    assert TRACE not in seen["traceparent"]
    assert entry["trace"] == seen["traceparent"].split("-")[1]


@pytest.mark.parametrize(("ratio", "flags"), [(0.0, {"00"}), (1.0, {"01"}), (0.5, {"00", "01"})])
def test_the_share_that_is_traced(place, ratio, flags):
    # That 40 lots of one half are all the same happens once in 10**12.
    seen, _said = told(place, [{}] * 40, traced(ratio=ratio))
    assert {headers["traceparent"][-2:] for headers in seen} == flags


def test_without_tracing_the_client_header_goes_through_as_it_is(place):
    [seen], [entry] = told(place, [{"traceparent": "x"}], RouterSettings(health=QUICK))
    assert seen["traceparent"] == "x"
    assert "trace" not in entry
