# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an SLO becomes: the bound that a histogram has, budgets, and when somebody is called."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.promql import rule_file
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.slo import (
    bounds,
    counted_limits,
    objectives,
    slo_groups,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    Objective,
    TelemetrySettings,
)

from support.demo import demo_plan
from support.telemetry.cases import named


def asked(slo, *plans):
    """Return the objectives of a deployment, and the codes of what is told of them."""
    plans = plans or (demo_plan(),)
    name = plans[0].deployment.name
    found, notes = objectives({name: plans}, TelemetrySettings(slos={name: slo}))
    return {one.slo: one for one in found}, [one.code for one in notes]


def with_buckets(argv, name="qwen3-235b"):
    plan = named(demo_plan(), name)
    replicas = tuple(replace(one, argv=(*one.argv, *argv)) for one in plan.replicas)
    return replace(plan, replicas=replicas)


@pytest.mark.parametrize(
    ("limit", "bucket", "told"),
    [
        ("ttft:p90:2500ms", 2.5, []),
        ("ttft:p90:2s", 1.0, ["TELEMETRY-SLO-BUCKET"]),
        ("ttft:p90:9000s", 2560.0, ["TELEMETRY-SLO-BUCKET"]),
        ("tpot:p90:50ms", 0.05, []),
        ("tpot:p90:60ms", 0.05, ["TELEMETRY-SLO-BUCKET"]),
        ("itl:p99:100ms", 0.1, []),
        ("e2el:p95:30s", 30.0, []),
    ],
)
def test_a_limit_between_bounds_counts_as_the_next_below(limit, bucket, told):
    found, codes = asked(limit)
    metric, percentile, _time = limit.split(":")
    one = found[f"{metric}_{percentile}"]
    assert (one.bucket, codes) == (bucket, told)
    assert one.bucket <= one.limit
    assert one.target == int(percentile[1:]) / 100


def test_a_limit_below_every_bound_is_told_and_not_watched():
    found, codes = asked("tpot:p90:5ms")
    assert set(found) == {"errors"}
    assert codes == ["TELEMETRY-SLO-UNSEEN"]


def test_an_old_engine_counts_tokens_and_that_is_told():
    old = named(demo_plan(), "qwen3-235b", version="0.10.2")
    assert asked("tpot:p90:50ms", old)[1] == ["TELEMETRY-SLO-TOKENS"]
    assert asked("ttft:p90:2500ms", old)[1] == []


@pytest.mark.parametrize(
    "argv",
    [
        ("--custom-histogram-buckets", '{"time_to_first_token": [0.5, 2.0]}'),
        ('--custom-histogram-buckets={"time_to_first_token": [0.5, 2.0]}',),
    ],
)
def test_bounds_that_an_operator_gave_the_engine_count(argv):
    assert bounds([with_buckets(argv)], "time_to_first_token") == (0.5, 2.0)
    found, codes = asked("ttft:p90:2s", with_buckets(argv))
    assert (found["ttft_p90"].bucket, codes) == (2.0, [])


def test_hosts_with_other_bounds_have_only_those_in_common():
    own = with_buckets(("--custom-histogram-buckets", '{"time_to_first_token": [1.0, 2.0]}'))
    assert bounds([own, demo_plan()], "time_to_first_token") == (1.0,)


@pytest.mark.parametrize(
    "argv", [("--custom-histogram-buckets",), ("--custom-histogram-buckets=x",)]
)
def test_bounds_that_are_no_json_change_none(argv):
    assert len(bounds([with_buckets(argv)], "inter_token_latency")) == 19


def test_limits_that_cannot_be_read_are_refused():
    with pytest.raises(ApiaryError, match="BENCH-SLO"):
        asked("ttft:2s")


def alert_ratios(target):
    """Return the shares of misses from which somebody is told, by speed."""
    groups = yaml.safe_load(rule_file(slo_groups([Objective("demo", "errors", target)])))["groups"]
    return {
        rule["labels"]["speed"]: float(rule["expr"].removeprefix("vector(").rstrip(")"))
        for rule in groups[0]["rules"]
        if rule["record"] == "apiary:slo_alert_ratio"
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # The workbook's own table: 14.4, 6 and 1 times the budget.
        (0.999, {"fast": 0.0144, "medium": 0.006, "slow": 0.001}),
        (0.99, {"fast": 0.144, "medium": 0.06, "slow": 0.01}),
        # 14.4 times 10 % cannot be; what counts then is that most requests miss.
        (0.9, {"fast": 0.8, "medium": 0.5, "slow": 0.1}),
        (0.5, {"fast": 0.8, "medium": 0.5, "slow": 0.5}),
    ],
)
def test_budgets_burn_at_the_rates_of_the_workbook(target, expected):
    assert alert_ratios(target) == pytest.approx(expected)


def test_goodput_counts_the_tightest_limit_of_each_metric_and_whole_requests():
    found, _codes = asked("ttft:p90:1s,ttft:p99:10s,tpot:p90:50ms,itl:p99:100ms")
    chosen = counted_limits("qwen3-235b", tuple(found.values()))
    assert chosen == ("ttft_p90", "tpot_p90")


def test_deployments_have_rules_of_their_own():
    both = (Objective("a", "ttft_p90", 0.9, 1.0, 1.0), Objective("b", "ttft_p90", 0.9, 5.0, 5.0))
    text = rule_file(slo_groups(both))
    assert 'deployment="a", le="1.0"' in text
    assert 'deployment="b", le="5.0"' in text
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    keys = [(rule["record"], str(rule["labels"])) for rule in rules]
    assert len(keys) == len(set(keys))
