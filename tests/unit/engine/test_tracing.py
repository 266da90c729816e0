# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traces of the engine: its command by version, who it says it is, and what is refused."""

import dataclasses
from urllib.parse import unquote

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Tracing,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import by_id
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import QWEN, deployment
from support.planned import build_plan
from support.topology.topologies import mi325x

GRPC = Tracing("http://collector:4317")
HTTP = Tracing("https://collector.example:4318/v1/traces", "http/protobuf", 0.05)
TRACED = [version for version in versions() if order(version) >= order("0.10.2")]


def traced(tracing=GRPC, version="0.33.0", **more):
    return dataclasses.replace(deployment(QWEN, version, **more), tracing=tracing)


def assessed(asked):
    return assess(known(QWEN), asked, "MI325X", 8000)


def findings(asked):
    made = assessed(asked)
    return [*made.recipe.findings, *(one.finding for one in made.refused)]


def codes(asked):
    return {finding.code: finding for finding in findings(asked)}


@pytest.mark.parametrize("version", TRACED)
def test_every_version_with_traces_gets_endpoint_protocol_and_sampler(version):
    made = assessed(traced(HTTP, version)).recipe
    where = made.argv.index("--otlp-traces-endpoint")
    assert made.argv[where + 1] == HTTP.endpoint
    told = {name: text for name, text in made.env.items() if name.startswith("OTEL_")}
    assert told == {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "test",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.05",
    }


@pytest.mark.parametrize("version", versions())
def test_without_tracing_nothing_is_said_of_it(version):
    made = assessed(traced(None, version)).recipe
    assert not [name for name in (*made.env, *made.argv) if "OTEL" in name or "otlp" in name]
    assert not [code for code in codes(traced(None, version)) if "TRACES" in code]


@pytest.mark.parametrize("version", versions())
def test_missing_packages_are_said_where_vllm_does_not_bring_them(version):
    brings = order(version) >= order("0.17.0")
    expected = None if brings or version == "0.9.2" else "warning"
    found = codes(traced(version=version)).get("ENGINE-TRACES-PACKAGES")
    assert (found and found.severity) == expected


def test_the_facts_of_versions_are_those_of_the_rules():
    told, known_rules = knowledge("tracing.yml")["engine"], by_id()
    assert known_rules["VLLM-TRACES"].versions.first == told["since"]
    last = known_rules["VLLM-TRACES-PACKAGES"].versions.last
    assert versions()[versions().index(last) + 1] == told["packages"]["required_since"]
    remedy = known_rules["VLLM-TRACES-PACKAGES"].effect["remedy"]
    assert all(name in remedy for name in told["packages"]["names"])


def test_packages_are_said_of_a_flag_of_the_operators_too():
    args = {"otlp-traces-endpoint": "http://c:4317"}
    assert "ENGINE-TRACES-PACKAGES" in codes(deployment(QWEN, "0.14.1", args=args))


@pytest.mark.parametrize(
    "asked",
    [
        traced(version="0.9.2"),
        deployment(QWEN, "0.9.2", args={"otlp-traces-endpoint": "http://c:4317"}),
    ],
    ids=["section", "flag"],
)
def test_an_engine_that_would_fall_back_to_v0_is_refused(asked):
    found = codes(asked)["ENGINE-TRACES-V0"]
    assert found.severity == "error"
    assert "0.10.2" in found.remedy


def test_detailed_traces_are_said_to_do_nothing():
    asked = traced(args={"collect-detailed-traces": ["all"]})
    [found] = [one for one in findings(asked) if "collect-detailed" in one.subject]
    assert (found.code, found.severity) == ("ENGINE-NO-EFFECT", "info")


def test_an_engine_says_which_replica_numa_node_and_gpus_it_is():
    plan = build_plan(traced(), mi325x(), known(QWEN))
    for index, replica in enumerate(plan.replicas):
        text = replica.env["OTEL_RESOURCE_ATTRIBUTES"]
        assert " " not in text
        pairs = dict(pair.split("=") for pair in text.split(","))
        told = {name: unquote(value) for name, value in pairs.items()}
        assert told["service.instance.id"] == f"{plan.host}-{index}"
        assert told["host.name"] == plan.host
        assert (told["apiary.deployment"], told["apiary.replica"]) == ("test", str(index))
        assert told["apiary.numa_nodes"] == " ".join(map(str, replica.memory_nodes))
        assert told["apiary.gpus"].split() == list(replica.gpus)
    assert any(reason.rule == "SERVE-TRACES" for reason in plan.replicas[0].reasons)


def test_what_the_operator_says_of_the_engine_stands():
    asked = traced(env={"OTEL_RESOURCE_ATTRIBUTES": "team=a", "OTEL_SERVICE_NAME": "chat"})
    plan = build_plan(asked, mi325x(), known(QWEN))
    assert plan.replicas[0].env["OTEL_RESOURCE_ATTRIBUTES"] == "team=a"
    assert plan.replicas[0].env["OTEL_SERVICE_NAME"] == "chat"


def test_a_plan_without_tracing_has_no_such_variable():
    plan = build_plan(traced(None), mi325x(), known(QWEN))
    assert "OTEL_RESOURCE_ATTRIBUTES" not in plan.replicas[0].env


@pytest.mark.parametrize("tracing", [GRPC, HTTP, Tracing("http://[fd00::1]:4317")])
def test_what_can_be_meant_is_taken(tracing):
    assert check_deployment(traced(tracing)) == ()


@pytest.mark.parametrize(
    ("tracing", "field"),
    [
        (Tracing("collector:4317"), "endpoint"),
        (Tracing("http://user:word@collector:4317"), "endpoint"),
        (Tracing("http://collector:4317\n--x"), "endpoint"),
        (Tracing("http://collector:4318", "http/protobuf"), "endpoint"),
        (Tracing("http://collector:4318/", "http/protobuf"), "endpoint"),
        (dataclasses.replace(GRPC, ratio=1.5), "ratio"),
        (dataclasses.replace(GRPC, ratio=-0.1), "ratio"),
    ],
)
def test_what_cannot_be_meant_is_refused(tracing, field):
    [found] = check_deployment(traced(tracing))
    assert (found.code, found.subject) == ("DEPLOY-VALUE", f"tracing.{field}")


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"]
)
def test_what_lets_spans_in_is_a_secret(name):
    asked = traced(env={name: "authorization=x"})
    assert [one.code for one in check_deployment(asked)] == ["DEPLOY-SECRET"]
