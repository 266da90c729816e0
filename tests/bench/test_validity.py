# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rule of a valid level is broken in the simulator, and flagged as just that rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.validity.evaluate import (
    RULES,
    evaluate,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from engine_simulator import Client, Engine, Faults, Parameters, simulate

ENGINE = Engine(
    step=0.01, sequence=1e-4, kv_token=1e-8, prefill_token=2e-5, kv_tokens=400_000, network=0.001
)
CALM = Parameters("calm", "lab/calm", ENGINE)
WORKLOAD = Workload("200/20", 200, 20)
LOAD = Load("fixed", WORKLOAD, 160, concurrency=16, warmups=16)
OPEN = Load("open", WORKLOAD, 600, request_rate=20.0, warmups=8)
SHARED = Workload("shared", 200, 20, kind="prefix", prefixes=2, prefix_tokens=160)


@dataclass(frozen=True)
class Case:
    """What breaks a rule, and what else can't be right then."""

    rule: str
    load: Load = LOAD
    engine: dict[str, Any] = field(default_factory=dict)
    version: str = "0.32.0"
    client: Client = field(default_factory=Client)
    faults: Faults = field(default_factory=Faults)
    slo: tuple[Limit, ...] = ()
    also: frozenset[str] = frozenset()
    status: str = "INVALID"

    def level(self):
        parameters = replace(CALM, version=self.version, engine=replace(ENGINE, **self.engine))
        raw = simulate(parameters, self.load, client=self.client, faults=self.faults)
        return evaluate(raw, self.slo)


CASES = (
    Case("exit", client=Client(processes=2, exit_code=1)),
    Case("incomplete", client=Client(processes=2, lost=1), load=replace(LOAD, requests=200)),
    Case("requests_per_slot", load=replace(LOAD, requests=100)),
    Case("requests_least", load=replace(LOAD, concurrency=1, requests=15, warmups=1)),
    Case("concurrency", client=Client(slots=13)),
    Case("rate", load=OPEN, client=Client(slots=4)),
    Case(
        "overload",
        load=replace(OPEN, request_rate=90.0, requests=3000),
        engine={"max_num_seqs": 32},
        also=frozenset({"BENCH-QUEUED"}),
    ),
    Case("output", faults=Faults(stop_share=0.05)),
    Case("input", client=Client(input_factor=0.9)),
    Case("repeats", client=Client(identical=True)),
    Case(
        "self_test",
        client=Client(request=0.012),
        load=replace(LOAD, concurrency=4),
        also=frozenset({"BENCH-ENGINE-TTFT"}),
    ),
    Case(
        "self_test_share",
        client=Client(request=0.007),
        load=replace(LOAD, concurrency=1, warmups=1),
        slo=(Limit("ttft", "p90", 0.12),),
    ),
    Case("client_cpu", client=Client(idle=0.95)),
    # What a counter of two engine runs says of the cache isn't known.
    Case("restarted", faults=Faults(restarted=True), also=frozenset({"BENCH-UNCHECKED"})),
    Case("errors", faults=Faults(error_share=0.004), load=replace(LOAD, requests=400)),
    Case("failed", faults=Faults(error_share=0.05), status="FAILED"),
    Case("unsteady", version="0.14.1", status="OK"),
    Case("untested", client=Client(self_test=False), status="OK"),
    Case("unchecked", client=Client(metrics=False), status="OK"),
    Case("engine_ttft", engine={"network": 0.05}, status="OK"),
    Case("unwarmed", version="0.10.2", status="OK", also=frozenset({"BENCH-UNSTEADY"})),
    Case(
        "clumped",
        client=Client(buffered=True),
        status="OK",
        also=frozenset({"BENCH-ENGINE-TTFT"}),
    ),
    Case("bundled", engine={"stream_interval": 4}, status="OK"),
    Case("cached", load=replace(LOAD, workload=SHARED), status="OK"),
    Case("preempted", engine={"kv_tokens": 3400}, status="OK", also=frozenset({"BENCH-KV-FULL"})),
    Case("kv_full", engine={"kv_tokens": 3520 + 10}, status="OK"),
    Case("queued", engine={"max_num_seqs": 4}, status="OK"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_breaking_one_rule_is_flagged_as_that_rule(case):
    level = case.level()
    assert {finding.code for finding in level.findings} == {RULES[case.rule]["code"]} | case.also, [
        str(finding) for finding in level.findings
    ]
    assert level.status == case.status


def test_a_slow_send_is_wrong_only_beside_a_short_limit():
    """The share of the SLO's limit is a rule of its own, though it has the other's code."""
    (case,) = [case for case in CASES if case.rule == "self_test_share"]
    assert replace(case, slo=()).level().findings == ()


def test_every_rule_has_a_case():
    # Two rules have two thresholds each.
    cases = {case.rule for case in CASES} | {"input_slack", "engine_ttft_slack"}
    assert set(RULES) == cases


@pytest.mark.parametrize("load", [LOAD, OPEN], ids=["closed", "open"])
def test_without_a_fault_nothing_is_found(load):
    level = evaluate(simulate(CALM, load), (Limit("ttft", "p90", 2.0),))
    assert (level.status, level.findings) == ("OK", ())


def test_an_engine_that_dies_fails_the_level_and_is_named():
    level = evaluate(simulate(CALM, LOAD, faults=Faults(crash_after=1.0)), ())
    assert level.status == "FAILED"
    assert {finding.code for finding in level.findings} >= {"BENCH-ERRORS", "BENCH-RESTARTED"}


def test_an_overloaded_client_is_flagged_and_more_processes_heal_it():
    load = Load("fixed", WORKLOAD, 2560, concurrency=256, warmups=256)
    # 25 us a chunk as measured of `vllm bench serve`, ten times that on a busy one.
    one = evaluate(simulate(CALM, load, client=Client(chunk=250e-6, cores=8)), ())
    eight = evaluate(simulate(CALM, load, client=Client(chunk=25e-6, cores=8, processes=8)), ())
    assert one.status == "INVALID"
    assert {finding.code for finding in one.findings} == {"BENCH-SELF-TEST", "BENCH-ENGINE-TTFT"}
    assert eight.status == "OK"
    # What it measured is the client: the engine's own TTFT says so.
    assert one.measured.ttft.mean > 1.1 * one.engine.ttft_mean
    assert eight.measured.ttft.mean == pytest.approx(eight.engine.ttft_mean, rel=0.1)
