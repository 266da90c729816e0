# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorded series: what they are made of exists, and they say what they mean."""

from __future__ import annotations

import itertools
import re

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.promql import (
    SETS,
    filled,
    number,
    rule_file,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.rules import (
    alert_group,
    recording_groups,
    thresholds,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.slo import slo_groups
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    Objective,
    TelemetrySettings,
)

from support.each import each
from support.telemetry import series as telemetry_series
from support.telemetry.prometheus import check
from support.telemetry.promql import labels_of, names
from support.telemetry.series import recorded_series

OBJECTIVES = (
    Objective("demo", "ttft_p90", 0.9, 1.0, 1.0),
    Objective("demo", "tpot_p90", 0.9, 0.05, 0.05),
    Objective("demo", "itl_p99", 0.99, 0.1, 0.1),
    Objective("demo", "errors", 0.995),
)
GROUPS = (*recording_groups(), *slo_groups(OBJECTIVES))
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {one["alert"]: one for one in knowledge("telemetry/alerts.yml")["alerts"]}
OWN = re.compile(r"(prometheus|alertmanager)_\w+")
SCRAPED = {"job", "instance"}


@pytest.fixture(scope="module")
def known():
    """Return labels by series, Prometheus' and Alertmanager's own too."""
    found = dict(telemetry_series.known())
    for alert in ALERTS.values():
        for name in alert["needs"]:
            if OWN.fullmatch(name):
                found[name] = frozenset({*SCRAPED, "rule_group", "integration"})
    return found


@each(RULES, name=lambda rule: rule["record"])
def test_a_rule_reads_series_and_labels_that_exist_and_records_what_the_table_says(rule, known):
    got = labels_of(rule["expr"], known) | set(rule.get("labels", ()))
    (entry,) = (one for one in recorded_series() if one["record"] == rule["record"])
    assert got <= {*SETS[entry["labels"]], *entry.get("more", ())}


@each(RULES, name=lambda rule: rule["record"])
def test_the_table_says_what_a_series_is_made_of(rule):
    (entry,) = (one for one in recorded_series() if one["record"] == rule["record"])
    if rule["record"].startswith(("apiary:slo_", "apiary:goodput")):
        return  # made of what each limit reads
    histogram = re.compile(r"(_bucket|_sum|_count)$")
    read = {histogram.sub("", name) if "vllm:" in name else name for name in names(rule["expr"])}
    said = {name for text in entry["needs"] for name in text.split("|")}
    joins = {"apiary:gpu_by_serial", "apiary:gpu_by_index"}
    if "amd" in entry:  # by way of the joins, which are made of it
        read = read - joins | {"apiary_gpu_info"}
    assert read - joins == said


@each(alert_group(TelemetrySettings())["rules"], name=lambda rule: rule["alert"])
def test_an_alert_reads_series_that_exist_and_has_the_labels_that_it_says(rule, known):
    entry = ALERTS[rule["alert"]]
    got = labels_of(rule["expr"], known)
    assert names(rule["expr"]) == set(entry["needs"])
    own = set(entry["labels"]) | (SCRAPED if entry.get("per_target") else set())
    assert own <= got or rule["alert"] == "PrometheusRulesFail", own - got
    for text in rule["annotations"].values():
        told = set(re.findall(r"\$labels\.(\w+)", text))
        assert told <= own, text


@each(ALERTS.values(), name=lambda alert: alert["alert"])
def test_an_alert_says_whom_it_calls_why_and_what_to_do(alert):
    assert alert["severity"] in ("critical", "warning", "info")
    for field in ("summary", "description", "remedy", "source"):
        assert alert[field].strip()
    assert "\n" not in alert["summary"]


def test_every_threshold_is_used_and_can_be_replaced():
    used = set(re.findall(r"%\{threshold:(\w+)\}", " ".join(a["expr"] for a in ALERTS.values())))
    assert used == set(knowledge("telemetry/settings.yml")["thresholds"])
    mine = TelemetrySettings(thresholds={"gpu_junction_celsius": 90.0})
    assert thresholds(mine)["gpu_junction_celsius"] == 90
    (hot,) = (rule for rule in alert_group(mine)["rules"] if rule["alert"] == "GpuHot")
    assert "> 90 or" in hot["expr"]


def engine_versions():
    """Return the versions of vLLM that Apiary knows, one on each side of every change of names."""
    bounds = {
        one[key]
        for one in knowledge("telemetry/vllm.yml")["series"]
        for key in ("since", "until")
        if key in one
    }
    return sorted({*bounds, *knowledge("telemetry/vllm.yml")["versions"].values()})


@pytest.mark.parametrize("version", engine_versions())
def test_what_is_recorded_of_an_engine_holds_for_every_version(version):
    there = telemetry_series.scraped(version)
    served = {name.removesuffix("_bucket") for name in there}
    for entry in recorded_series():
        for text in entry["needs"]:
            for_engine = [name for name in text.split("|") if name.startswith("vllm:")]
            if not for_engine:
                continue
            assert set(for_engine) & served or (
                # Gaps between tokens are histograms of their own from 0.10.2 on.
                entry["record"].startswith("apiary:itl")
            ), (entry["record"], version)


def test_series_are_named_once():
    found = [one["record"] for one in recorded_series()]
    assert len(found) == len(set(found))
    recorded = {rule["record"] for rule in RULES}
    assert set(found) == recorded


def test_numbers_are_written_as_promql_has_them():
    assert [number(one) for one in (2, 0.05, 1e-05, 14.4, 0)] == [
        "2",
        "0.05",
        "0.00001",
        "14.4",
        "0",
    ]
    assert filled("by (%{host}) > %{limit}", {"limit": "3"}) == (
        "by (host, rack, failure_domain) > 3"
    )


AMD = 'job="amd-metrics", instance="10.0.0.1:5000", host="gpu-001", rack="r1", kind="x"'
INFO = 'job="node", instance="10.0.0.1:9100", host="gpu-001", rack="r1"'
ENGINE = 'job="vllm", deployment="demo", host="gpu-001", rack="r1"'


def gpu(index, serial, bus, replica="0"):
    """Return what the host says of one GPU."""
    labels = (
        f'gpu="0000:{bus}:00.0", gpu_id="{index}", serial_number="{serial}", numa_node="0", '
        f'hive="h", deployment="demo", replica="{replica}"'
    )
    return f"apiary_gpu_info{{{INFO}, {labels}}}"


def amd(metric, index, serial):
    return f'{metric}{{{AMD}, gpu_id="{index}", serial_number="{serial}"}}'


def joined(index, bus, replica="0"):
    return (
        f'{{deployment="demo", gpu="0000:{bus}:00.0", gpu_id="{index}", hive="h", '
        f'host="gpu-001", numa_node="0", rack="r1", replica="{replica}"}}'
    )


POWER = "amd_gpu_package_power"
HEALTH = "amd_gpu_health"
TTFT = "vllm:time_to_first_token_seconds"
ROUTER = 'job="haproxy", instance="10.0.0.9:8405", host="router-001"'
TPOT = "vllm:request_time_per_output_token_seconds"
MEANINGS = {
    "GPUs are named by their serial numbers": (
        {
            gpu(0, "A", "05"): "1x5",
            gpu(1, "B", "26", "1"): "1x5",
            amd(HEALTH, 0, "A"): "1x5",
            amd(HEALTH, 1, "B"): "1x5",
            amd(POWER, 0, "A"): "300x5",
            amd(POWER, 1, "B"): "700x5",
        },
        "apiary:gpu_power_watts",
        {joined(0, "05"): 300, joined(1, "26", "1"): 700},
    ),
    # GPU A fell off the bus: the kernel counts B as 0 now, the exporter, which runs on, as 1.
    "a GPU that is lost gives its index to none": (
        {
            gpu(0, "B", "26", "1"): "1x5",
            amd(HEALTH, 0, "A"): "0x5",
            amd(HEALTH, 1, "B"): "1x5",
            amd(POWER, 0, "A"): "0x5",
            amd(POWER, 1, "B"): "700x5",
        },
        "apiary:gpu_power_watts",
        {joined(0, "26", "1"): 700},
    ),
    "GPUs without serial numbers are named by their index": (
        {
            gpu(0, "", "05"): "1x5",
            gpu(1, "", "26", "1"): "1x5",
            amd(HEALTH, 0, ""): "1x5",
            amd(HEALTH, 1, ""): "1x5",
            amd(POWER, 0, ""): "300x5",
            amd(POWER, 1, ""): "700x5",
        },
        "apiary:gpu_power_watts",
        {joined(0, "05"): 300, joined(1, "26", "1"): 700},
    ),
    "a board's number that all GPUs have decides nothing": (
        {
            gpu(0, "X", "05"): "1x5",
            gpu(1, "X", "26", "1"): "1x5",
            amd(HEALTH, 0, "X"): "1x5",
            amd(HEALTH, 1, "X"): "1x5",
            amd(POWER, 0, "X"): "300x5",
            amd(POWER, 1, "X"): "700x5",
        },
        "apiary:gpu_power_watts",
        {joined(0, "05"): 300, joined(1, "26", "1"): 700},
    ),
    "an older GPU has its power by another name": (
        {
            gpu(0, "A", "05"): "1x5",
            amd(HEALTH, 0, "A"): "1x5",
            amd("amd_gpu_average_package_power", 0, "A"): "500x5",
        },
        "apiary:gpu_power_watts",
        {joined(0, "05"): 500},
    ),
    # Its index changed at 11 minutes, within the range of the rate.
    "a GPU whose index changes keeps its rates": (
        {
            gpu(1, "B", "26"): "1x10 stale",
            gpu(0, "B", "26"): "_x11 1x20",
            amd(HEALTH, 1, "B"): "1x10 stale",
            amd(HEALTH, 0, "B"): "_x11 1x20",
            amd("amd_gpu_xgmi_link_rx", 1, "B"): "0+60x10 stale",
            amd("amd_gpu_xgmi_link_rx", 0, "B"): "_x11 660+60x20",
        },
        "apiary:gpu_xgmi_receive_bytes:rate_5m",
        {joined(0, "26"): 1024},
    ),
    "units are converted": (
        {
            gpu(0, "A", "05"): "1x5",
            amd(HEALTH, 0, "A"): "1x5",
            amd("amd_gpu_used_vram", 0, "A"): "2x5",
        },
        "apiary:gpu_vram_used_bytes",
        {joined(0, "05"): 2097152},
    ),
    "a request that misses two limits counts twice, so goodput is a bound": (
        {
            f'{TTFT}_count{{{ENGINE}, replica="0"}}': "0+100x20",
            f'{TTFT}_bucket{{{ENGINE}, replica="0", le="1.0"}}': ("0+90x20"),
            f'{TPOT}_count{{{ENGINE}, replica="0"}}': "0+100x20",
            f'{TPOT}_bucket{{{ENGINE}, replica="0", le="0.05"}}': "0+80x20",
            f'vllm:request_success_total{{{ENGINE}, replica="0", finished_reason="stop"}}': (
                "0+100x20"
            ),
        },
        "round(apiary:goodput:ratio_5m, 0.0001)",
        {'{deployment="demo"}': 0.7},
    ),
    "replicas of old and new engines are one deployment": (
        {
            f'vllm:time_per_output_token_seconds_count{{{ENGINE}, replica="0"}}': "0+100x20",
            f'vllm:time_per_output_token_seconds_bucket{{{ENGINE}, replica="0", le="0.05"}}': (
                "0+100x20"
            ),
            f'{TPOT}_count{{{ENGINE}, replica="1"}}': "0+100x20",
            f'{TPOT}_bucket{{{ENGINE}, replica="1", le="0.05"}}': "0+50x20",
        },
        'round(apiary:slo_misses:ratio_5m{slo="tpot_p90"}, 0.0001)',
        {'{deployment="demo", slo="tpot_p90"}': 0.25},
    ),
    "percentiles are within their bucket, of all replicas": (
        {
            **{
                f'{TTFT}_bucket{{{ENGINE}, replica="{index}", le="{le}"}}': f"0+{count}x20"
                for index, counts in ((0, (100, 100, 100)), (1, (0, 100, 100)))
                for le, count in zip(("0.5", "1.0", "+Inf"), counts, strict=True)
            },
        },
        "round(apiary:deployment_ttft_seconds:p90_5m, 0.0001)",
        # 180 of 200 requests: 80 % of the way through the second bucket.
        {'{deployment="demo"}': 0.9},
    ),
    "what a client left is finished and not failed": (
        {
            f'vllm:request_success_total{{{ENGINE}, replica="0", finished_reason="{reason}"}}': (
                f"0+{count}x20"
            )
            for reason, count in (("stop", 80), ("abort", 15), ("error", 5))
        },
        "round(apiary:deployment_request_errors:ratio_5m, 0.0001)",
        {'{deployment="demo"}': 0.05},
    ),
    "no failure is a rate of 0": (
        {f'vllm:request_success_total{{{ENGINE}, replica="0", finished_reason="stop"}}': "0+80x20"},
        "apiary:deployment_request_errors:ratio_5m",
        {'{deployment="demo"}': 0},
    ),
    "a router's own backends are none of its deployments": (
        {
            f'haproxy_backend_http_responses_total{{{ROUTER}, proxy="{proxy}", code="2xx"}}': (
                "0+60x20"
            )
            for proxy in ("demo", "apiary-rates")
        },
        "apiary:router_requests:rate_5m",
        {'{code="2xx", deployment="demo", host="router-001"}': 1},
    ),
    "replicas that are planned count although they are down": (
        {
            f'up{{{ENGINE}, replica="0", instance="a:8000"}}': "1x20",
            f'up{{{ENGINE}, replica="1", instance="a:8001"}}': "0x20",
        },
        "apiary:deployment_replicas:planned - apiary:deployment_replicas:up",
        {'{deployment="demo"}': 1},
    ),
    "no request is no miss": (
        {
            f'{TTFT}_count{{{ENGINE}, replica="0"}}': "7x20",
            f'{TTFT}_bucket{{{ENGINE}, replica="0", le="1.0"}}': "0x20",
        },
        "apiary:slo_misses:ratio_5m",
        {},
    ),
    "engines of one replica are counted together, and the fullest cache decides": (
        {
            f'vllm:kv_cache_usage_perc{{{ENGINE}, replica="0", engine="0"}}': "0.2x20",
            f'vllm:kv_cache_usage_perc{{{ENGINE}, replica="0", engine="1"}}': "0.9x20",
        },
        "apiary:kv_cache_usage",
        {'{deployment="demo", host="gpu-001", rack="r1", replica="0"}': 0.9},
    ),
}


def meant(name):
    """Return one of the meanings as promtool tests it."""
    given, expression, expected = MEANINGS[name]
    plain = re.fullmatch(r"[a-z0-9_:]+", expression)
    samples = [
        {"labels": f"{expression if plain else ''}{labels}", "value": value}
        for labels, value in expected.items()
    ]
    at = "4m" if all(values.endswith("x5") for values in given.values()) else "15m"
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": text, "values": values} for text, values in given.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": at, "exp_samples": samples}],
    }


def test_series_mean_what_they_say(tmp_path):
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in GROUPS],
        "tests": [meant(name) for name in MEANINGS],
    }
    (tmp_path / "rules.yml").write_text(rule_file(GROUPS))
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document, sort_keys=False, width=1000))
    good, said = check("promtool", "test", "rules", "tests.yml", at=tmp_path)
    assert good, said


def test_what_follows_in_a_group_stands_behind_what_it_reads():
    seen = set()
    for rule in itertools.chain.from_iterable(group["rules"] for group in recording_groups()):
        read = {name for name in names(rule["expr"]) if name.startswith("apiary:")}
        # One that reads itself means what it was before.
        assert read <= {*seen, rule["record"]}, rule["record"]
        seen.add(rule["record"])
