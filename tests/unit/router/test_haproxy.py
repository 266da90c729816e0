# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import (
    engines_map,
    render_router,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    ApiKey,
    Limits,
    Router,
    RouterSettings,
)

from support.router.cases import routers


def rendered(router):
    return {file.path: file for file in (*render_router(router), engines_map({}))}


def configuration(settings, case="default"):
    router = replace(routers()[case], settings=settings)
    return rendered(router)["/etc/haproxy/haproxy.cfg"].content


@pytest.mark.parametrize("case", routers())
def test_golden(golden, case):
    for path, file in rendered(routers()[case]).items():
        name = path.rpartition("/")[2]
        # The others' are the same.
        places = {"paths.lst": ("everything",), "replica.lua": ("default", "shared", "experiment")}
        if case in places.get(name, (case,)):
            golden(f"router/{case}/{name}", file.content)


def test_what_says_who_may_ask_is_no_ones_to_read():
    modes = {path: file.mode for path, file in rendered(routers()["everything"]).items()}
    secret = {path for path, mode in modes.items() if mode != "0644"}
    assert {path.rpartition("/")[2] for path in secret} == {
        *("keys.map", "rates.map", "concurrency.map", "engines.map", "priorities.map")
    }
    assert {modes[path] for path in secret} == {"0640"}


def test_every_place_is_where_the_role_puts_files():
    text = configuration(routers()["everything"].settings, "everything")
    named = set(re.findall(r"/etc/haproxy/apiary/[a-z.]+", text))
    assert named == set(rendered(routers()["everything"])) - {"/etc/haproxy/haproxy.cfg"} | {
        "/etc/haproxy/apiary/tls.pem"
    }


def test_a_body_is_looked_into_only_where_that_is_asked_for():
    keys = ("header:X-Session-Id", "json:user", "prompt")
    assert "req.body," not in configuration(RouterSettings(affinity=Affinity(keys=keys[:1])))
    text = configuration(RouterSettings(affinity=Affinity(keys=keys, json_bytes=65536)))
    assert text.count("req.body,bytes(0,65536)") == 1


def test_the_buffer_has_room_for_the_largest_request_and_what_is_before_it():
    """What HAProxy cannot hold whole it would hand on while it comes."""
    images = replace(routers()["default"].pools[0], images=True, deployment="pictures", port=9)
    router = routers()["default"]
    pools = (*router.pools, images)
    for limit, expected in ((None, (8 << 20, 26 << 20)), (100_000, (100_000, 100_000))):
        settings = replace(router.settings, limits=Limits(body_bytes=limit))
        files = {one.path: one.content for one in render_router(Router(settings, pools))}
        text = files["/etc/haproxy/haproxy.cfg"]
        sizes = [int(size) for size in re.findall(r"req.body_size gt (\d+)", text)]
        assert sizes == [expected[0], expected[0], expected[1], expected[1]]
        assert f"tune.bufsize {max(expected) + 65536}\n" in text
    # Two lines of 16 KiB, a hundred headers with HAProxy's eight bytes each, and its own reserve.
    bodies = knowledge("router.yml")["bodies"]
    assert bodies["beside"] > 2 * bodies["headers"] + 101 * 8 + 1024


def test_without_keys_nobody_is_asked_for_one():
    assert "invalid_api_key" not in configuration(RouterSettings())
    assert "apiary-keys" not in configuration(RouterSettings())
    one = configuration(RouterSettings(keys=(ApiKey("a", "a" * 64),)))
    # Nobody else is there to leave room for.
    assert "txn.share" not in one
    assert "txn.limit" not in one


def test_an_address_has_a_quarter_of_the_connections_unless_somebody_says():
    assert "sc1_conn_cur gt 5000 }" in configuration(RouterSettings())
    limits = Limits(connections_per_source=9)
    assert "sc1_conn_cur gt 9 }" in configuration(RouterSettings(limits=limits))


def test_keys_are_tried_in_their_order():
    keys = ("cookie:b", "address", "header:A")
    text = configuration(RouterSettings(affinity=Affinity(keys=keys)))
    rules = re.findall(r"set-var\(txn.session\) (\S+) if", text)
    assert rules == ["req.cook(b)", "src,ipmask(32,64)", "req.fhdr(A)"]


def test_no_path_of_the_engines_operator_is_let_through():
    for path in ("/metrics", "/sleep", "/collective_rpc", "/v1/load_lora_adapter", "/health"):
        assert path not in knowledge("router.yml")["paths"]["exact"]


def test_the_alert_of_connections_counts_with_what_is_kept_beyond_the_limit():
    alerts = {one["alert"]: one for one in knowledge("telemetry/alerts.yml")["alerts"]}
    kept = knowledge("router.yml")["full"]["process"]
    assert f"haproxy_process_max_connections - {kept})" in alerts["RouterConnectionsHigh"]["expr"]
