# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.check import (
    check_router,
    check_settings,
    since,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    ApiKey,
    Experiment,
    Health,
    Limits,
    Queueing,
    Router,
    RouterSettings,
    Timeouts,
    Tls,
)

from support.router.haproxy import pool_of

DIGEST = "a" * 64
SPECS = Path(__file__).parents[3] / "roles/router/meta/argument_specs.yml"


def test_the_defaults_are_sound():
    assert check_settings(RouterSettings()) == ()


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("listen", {"listen": ("1.2.3.4\n    bind *:1",)}),
        ("listen", {"listen": ()}),
        ("listen", {"admin_listen": ""}),
        ("first_port", {"first_port": 0}),
        ("ports.a", {"ports": {"a": 70000}}),
        ("shared_port", {"shared_port": 70000}),
        ("shared_port", {"shared_port": -1}),
        ("paths", {"paths": ("/v1/x\n/metrics",)}),
        ("log", {"log": "/dev/log\n    user root"}),
        ("tls.certificate", {"tls": Tls(certificate="relative.pem")}),
        ("tls.minimum", {"tls": Tls(minimum="SSLv3")}),
        ("version", {"version": "2.2.9"}),
        ("version", {"version": "new"}),
        ("connections", {"connections": 1}),
        ("threads", {"threads": 0}),
        ("active_routers", {"active_routers": 0}),
        ("queueing.concurrency", {"queueing": Queueing(concurrency=0)}),
        ("queueing.timeout_seconds", {"queueing": Queueing(timeout_seconds=0)}),
        ("queueing.ttft_seconds.demo", {"queueing": Queueing(ttft_seconds={"demo": 0})}),
        ("queueing.within_slo.a", {"queueing": Queueing(within_slo={"a": 0})}),
        ("queueing", {"queueing": Queueing(within_slo={'a"] = os.exit()': 9})}),
        ("keys.a.priority", {"keys": (ApiKey("a", DIGEST, priority="first"),)}),
        ("timeouts.response", {"timeouts": Timeouts(response=0)}),
        ("health.interval", {"health": Health(interval=0)}),
        ("health.slow_start", {"health": Health(slow_start=-1)}),
        ("health.passive_errors", {"health": Health(passive_errors=0)}),
        ("affinity.balance_percent", {"affinity": Affinity(balance_percent=100)}),
        ("affinity.free_percent", {"affinity": Affinity(free_percent=101)}),
        ("affinity.json_bytes", {"affinity": Affinity(json_bytes=10**9)}),
        ("affinity.keys", {"affinity": Affinity(keys=("header:",))}),
        ("affinity.keys", {"affinity": Affinity(keys=("header:a b",))}),
        ("affinity.keys", {"affinity": Affinity(keys=("json:a'b",))}),
        ("affinity.keys", {"affinity": Affinity(keys=("address:x",))}),
        ("affinity.keys", {"affinity": Affinity(keys=("body:user",))}),
        ("keys.name", {"keys": (ApiKey('a"b', DIGEST),)}),
        ("keys.a.sha256", {"keys": (ApiKey("a", "sk-clear-text-by-mistake"),)}),
        ("keys.a.requests_per_minute", {"keys": (ApiKey("a", DIGEST, 0),)}),
        ("keys.a.concurrent_requests", {"keys": (ApiKey("a", DIGEST, None, 0),)}),
        ("limits.body_bytes", {"limits": Limits(body_bytes=1000)}),
        ("limits.body_bytes", {"limits": Limits(body_bytes=1 << 30)}),
        ("limits.body_seconds", {"limits": Limits(body_seconds=0)}),
        ("limits.connections_per_source", {"limits": Limits(connections_per_source=0)}),
        ("limits.requests_per_key", {"limits": Limits(requests_per_key=0)}),
        ("keys", {"keys": (ApiKey("a", DIGEST), ApiKey("a", "b" * 64))}),
        ("keys", {"keys": (ApiKey("a", DIGEST), ApiKey("b", DIGEST))}),
    ],
)
def test_what_cannot_be_meant_is_refused(field, settings):
    findings = check_settings(RouterSettings(**settings))
    assert [(one.code, one.severity, one.subject) for one in findings] == [
        ("ROUTER-SETTING", "error", field)
    ]


def numbers_of(settings, prefix=""):
    """Yield the name of each setting that is a number, or may be one."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            yield from numbers_of(value, f"{field.name}.")
        elif re.match(r"(dict\[str, )?(int|float)\b", field.type):
            yield f"{prefix}{field.name}"


def test_every_number_has_a_range():
    ranges = {*knowledge("router.yml")["ranges"]["entries"]} - {"tracing.ratio"}
    assert ranges == {*numbers_of(RouterSettings())}


@pytest.mark.parametrize("part", [Timeouts(), Health()])
def test_the_role_names_the_defaults_as_they_are(part):
    """Health's were 0.25, 5 and 3 in the role's documentation, and 0.1, 10 and 2 in the router."""
    name = f"router_{type(part).__name__.lower()}"
    options = yaml.safe_load(SPECS.read_text())["argument_specs"]["main"]["options"]
    named = re.findall(r"C\((\w+)\)[^();]*\(([0-9.]+)\)", options[name]["description"])
    assert {key: float(value) for key, value in named} == vars(part)


def test_a_key_in_place_of_its_digest_is_not_shown():
    [finding] = check_settings(RouterSettings(keys=(ApiKey("a", "sk-clear-text-by-mistake"),)))
    assert "sk-clear" not in str(finding)


def named(**changes):
    pool = pool_of([8000])
    server = replace(pool.servers[0], **{k: v for k, v in changes.items() if k != "deployment"})
    pool = replace(pool, servers=(server,), deployment=changes.get("deployment", "demo"))
    return [finding.code for finding in check_router(Router(RouterSettings(), (pool,)))]


def test_names_stay_in_their_place():
    assert named() == []
    assert named(name="a b") == ["ROUTER-NAME"]
    assert named(address="10.0.0.1\nserver x") == ["ROUTER-NAME"]
    assert named(address="fd00::1") == []
    assert named(deployment="apiary-admin") == ["ROUTER-NAME"]
    assert named(deployment="a\nb") == ["ROUTER-NAME"]


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b", "a\nb", "", "é", "a" * 257])
def test_a_models_name_stays_in_its_place(name):
    pool = replace(pool_of([8000]), served=("org/a", name))
    shared = RouterSettings(shared_port=8000)
    assert [one.code for one in check_router(Router(shared, (pool,)))] == ["ROUTER-NAME"]
    assert check_router(Router(RouterSettings(), (pool,))) == ()
    assert check_router(Router(shared, (replace(pool, served=("org/a:b@c+1",)),))) == ()


@pytest.mark.parametrize(
    ("version", "first", "expected"),
    [
        ("2.6.12-1+deb12u4", "2.6", True),
        ("2.4.24-0ubuntu0.22.04.1", "2.6", False),
        ("2.10", "2.6", True),
        ("3.0.11", "2.6", True),
    ],
)
def test_versions_are_compared_by_number(version, first, expected):
    assert since(version, first) is expected


EXPERIMENT_MISTAKES = {
    "unknown": ({"a": Experiment("c", 0.1)}, {}, "'c' is no deployment of this router"),
    "of an unknown one": ({"c": Experiment("b", 0.1)}, {}, "'c' is no deployment of this router"),
    "itself": ({"a": Experiment("a", 0.1)}, {}, "a is divided itself"),
    "divided, too": ({"a": Experiment("b", 0.1), "b": Experiment("x", 0.1)}, {}, "b is divided"),
    "above 1": ({"a": Experiment("b", 1.5)}, {}, "1.5, expected 0 to 1"),
    "below 0": ({"a": Experiment("b", -0.1)}, {}, "-0.1, expected 0 to 1"),
    "no number": ({"a": Experiment("b", float("nan"))}, {}, "nan, expected 0 to 1"),
    "another model": ({"a": Experiment("other", 0.1)}, {}, "other does not serve org/model"),
    "a locked one": ({"a": Experiment("locked", 0.1)}, {}, "of locked have another key"),
    "another key": ({"a": Experiment("b", 0.1)}, {"a": "x", "b": "y"}, "of b have another key"),
}


@pytest.mark.parametrize("case", EXPERIMENT_MISTAKES)
def test_what_cannot_be_compared_is_refused_once(case):
    experiments, keys, message = EXPERIMENT_MISTAKES[case]
    pools = [pool_of([8000], deployment=name) for name in ("a", "b", "other", "locked")]
    pools[2] = replace(pools[2], served=("org/another",))
    pools[3] = replace(pools[3], engine_key=True)
    router = Router(RouterSettings(experiments=experiments), tuple(pools))
    found = check_router(router, keys)
    first = found[0]
    assert first.code == "ROUTER-EXPERIMENT"
    assert message in first.message
    assert len(found) == len(experiments)


def test_an_experiment_with_keys_of_the_router_needs_no_key_in_common():
    pools = (pool_of([8000], deployment="a"), pool_of([8001], deployment="b"))
    for one in (pools, (pools[0], replace(pools[1], engine_key=True))):
        settings = RouterSettings(
            experiments={"a": Experiment("b", 1.0)}, keys=(ApiKey("alice", DIGEST),)
        )
        assert check_router(Router(settings, one), {"b": "y"}) == ()
