# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a playbook measures: the plans on the controller, the routers, the load host."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.place import (
    Replicas,
    Router,
    place_of,
    refuse_serving,
    same_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError


def replicas(host, name="a", rank=None, listens="0.0.0.0", timeout=None):
    replica = {"unit": f"apiary-{name}-0.service", "port": 8000, "start_timeout_seconds": timeout}
    plan = {
        "deployment": {
            "name": name,
            "listen_address": listens,
            "model": {"name": "org/m"},
            "engine": {"executable": "/v"},
            "secrets": ["VLLM_API_KEY"],
        },
        "replicas": [replica],
        "node": None if rank is None else {"rank": rank},
    }
    return Replicas(host, f"/a/{host}/plan.json", plan, f"{host}.lan")


def test_without_routers_the_replicas_themselves_are_measured():
    place = place_of([replicas("h"), replicas("i", timeout=90)], Router(), ())
    assert place.urls == ("http://h.lan:8000", "http://i.lan:8000")
    assert place.metrics == ("http://h.lan:8000/metrics", "http://i.lan:8000/metrics")
    assert (place.load_host, place.itself, place.start_seconds) == ("h", True, 90)
    assert place.keyed
    assert place.units["i"] == ("apiary-a-0.service",)
    assert [one.code for one in same_host(place)] == ["BENCH-SAME-HOST"]


def test_a_load_generator_sends_the_load_to_the_routers_endpoint():
    router = Router(("r1", "r2"), {"a": 8081, "b": 9000}, True)
    place = place_of([replicas("h")], router, ("load-1", "load-2"))
    assert (place.load_host, place.itself) == ("load-1", False)
    assert place.urls == ("https://r1:8081", "https://r2:8081")
    assert place.metrics == ("http://h.lan:8000/metrics",)
    with pytest.raises(ApiaryError, match="BENCH-PLAN: c: is at none of the routers"):
        router.urls("c")
    assert same_host(place) == ()


def test_other_addresses_are_taken_as_they_are():
    place = place_of([replicas("h")], Router(("r",)), (), urls=["http://x"], metrics=["http://y"])
    assert (place.urls, place.metrics) == (("http://x",), ("http://y",))


def test_of_several_nodes_the_first_one_answers():
    place = place_of([replicas("h", rank=0), replicas("i", rank=1)], Router(), ())
    assert place.urls == ("http://h.lan:8000",)
    assert place_of([replicas("h", listens="10.0.0.1")], Router(), ()).urls == (
        "http://10.0.0.1:8000",
    )


@pytest.mark.parametrize(
    ("hosts", "deployment", "words"),
    [
        ([replicas("h"), Replicas("i", "/a/i/plan.json", {}, "i")], "", "i: has no plan at /a/i/"),
        ([replicas("h"), replicas("i", "b")], "", "i: serves b, not a"),
        ([replicas("h")], "b", "h: serves a, not b"),
    ],
)
def test_what_is_meant_is_not_guessed(hosts, deployment, words):
    with pytest.raises(ApiaryError, match=words) as refusal:
        place_of(hosts, Router(), (), deployment)
    assert refusal.value.findings[0].code == "BENCH-PLAN"


def test_engines_that_routers_send_to_are_not_restarted():
    ready, drained = {"a/h-0": {"state": "ready"}}, {"a/h-0": {"state": "drain"}}
    refuse_serving("a", 1, [ready])
    refuse_serving("a", 3, [drained, {"b/h-0": {"state": "ready"}}])
    with pytest.raises(ApiaryError, match="BENCH-SERVING: a: 3 engine runs"):
        refuse_serving("a", 3, [drained, ready])
