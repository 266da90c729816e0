# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is watched of a fleet, in files that Prometheus and Alertmanager take."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    Ports,
    Receiver,
    TelemetrySettings,
)

from support.demo import demo_plan
from support.telemetry.cases import SETTINGS, named, spanning, watched_hosts
from support.telemetry.prometheus import check

GOLDEN = (
    "alertmanager.yml",
    "prometheus.yml",
    "rules/slo.yml",
    "targets/amd-metrics.json",
    "targets/haproxy.json",
    "targets/node.json",
    "targets/vllm.json",
)
PLAIN = MonitoredHost("gpu-001", "10.0.0.1", plans=(demo_plan(),))
HEARD = TelemetrySettings(
    receivers=(Receiver("hook", "webhook", "https://alerts.example.org"),),
    routes={"critical": ("hook",)},
)


@pytest.fixture(scope="module")
def plan():
    return telemetry_plan(watched_hosts(), SETTINGS)


@pytest.fixture
def place(plan, tmp_path):
    """Write all files of the plan; return their directory."""
    for name, text in plan.files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def targets(plan, job):
    return json.loads(plan.files[f"targets/{job}.json"])


def refusals(hosts, settings=HEARD):
    with pytest.raises(ApiaryError) as caught:
        telemetry_plan(hosts, settings)
    assert all(one.severity == "error" for one in caught.value.findings)
    return {(one.code, one.subject) for one in caught.value.findings}


@pytest.mark.parametrize("name", GOLDEN)
def test_files_are_as_they_were(plan, golden, name):
    golden(f"telemetry/{name}", plan.files[name])


def test_prometheus_takes_the_configuration_its_rules_and_targets(place):
    good, said = check("promtool", "check", "config", "prometheus.yml", at=place)
    assert good, said
    assert "FAILED" not in said


def test_alertmanager_takes_its_configuration(place):
    good, said = check("amtool", "check-config", "alertmanager.yml", at=place)
    assert good, said


@pytest.mark.parametrize(
    ("severity", "receiver"),
    [("critical", "critical"), ("warning", "warning"), ("info", "info"), ("else", "nobody")],
)
def test_alerts_are_routed_by_severity(place, severity, receiver):
    routing = ("config", "routes", "test", "--config.file=alertmanager.yml")
    good, said = check("amtool", *routing, f"severity={severity}", at=place)
    assert good, said
    assert said.split()[0] == receiver


def test_a_name_may_have_any_letters(tmp_path):
    cluster = "caf\u00e9 \U0001f680 \\ \u2028"
    plan = telemetry_plan([PLAIN], replace(HEARD, cluster=cluster))
    for name, text in plan.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    text = plan.files["prometheus.yml"]
    assert yaml.safe_load(text)["global"]["external_labels"] == {"cluster": cluster}
    good, said = check("promtool", "check", "config", "prometheus.yml", at=tmp_path)
    assert good, said


def test_every_replica_is_a_target_with_its_place(plan):
    (one,) = (one for one in targets(plan, "vllm") if one["targets"] == ["[fd00::2]:8001"])
    assert one["labels"] == {
        "deployment": "qwen3-235b",
        "engine_version": "0.33.0",
        "failure_domain": "power-1",
        "host": "gpu-002",
        "model": "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
        "numa_node": "1",
        "rack": "r1",
        "replica": "1",
    }


def test_of_a_replica_over_hosts_the_first_host_alone_is_read(plan):
    large = [one for one in targets(plan, "vllm") if one["labels"]["deployment"] == "large"]
    assert {one["labels"]["host"] for one in large} == {"gpu-001"}


def test_a_router_has_no_gpus_and_a_host_without_rack_has_no_such_label(plan):
    assert [one["targets"] for one in targets(plan, "haproxy")] == [["10.0.0.9:8405"]]
    assert "router-001" not in {one["labels"]["host"] for one in targets(plan, "amd-metrics")}
    (node,) = (one for one in targets(plan, "node") if one["targets"] == ["10.0.0.9:9100"])
    assert node["labels"] == {"host": "router-001"}


def test_a_dropped_alert_is_gone(plan):
    rules = yaml.safe_load(plan.files["rules/alerts.yml"])["groups"][0]["rules"]
    assert "RebootRequired" not in {rule["alert"] for rule in rules}
    assert len(rules) == len(knowledge("telemetry/alerts.yml")["alerts"]) - 1


def test_the_order_of_hosts_changes_nothing(plan):
    hosts = list(watched_hosts())
    random.Random(1).shuffle(hosts)
    assert telemetry_plan(hosts, SETTINGS) == plan


def test_patience_shortens_how_long_alerts_wait():
    files = telemetry_plan([PLAIN], replace(HEARD, patience=0.01)).files
    rules = yaml.safe_load(files["rules/alerts.yml"])["groups"][0]["rules"]
    waits = {rule["alert"]: rule.get("for") for rule in rules}
    assert waits["ReplicaDown"] == "6s"
    assert waits["DeploymentDown"] == "1s"
    assert waits["SloBurnFast"] is None
    none = telemetry_plan([PLAIN], replace(HEARD, patience=0)).files["rules/alerts.yml"]
    assert "\n    for:" not in none


def test_no_secret_is_in_any_file(plan):
    told = json.dumps(plan.files)
    assert "/etc/prometheus/secrets/slack" in told
    assert "api_url:" not in told
    assert "auth_password:" not in told


def notes(hosts, settings=HEARD):
    return {(one.code, one.subject) for one in telemetry_plan(hosts, settings).findings}


def test_a_deployment_without_slo_is_named_and_has_no_goodput():
    told = telemetry_plan([PLAIN], HEARD)
    assert ("TELEMETRY-SLO-MISSING", "qwen3-235b") in {
        (one.code, one.subject) for one in told.findings
    }
    assert "apiary:goodput" not in told.files["rules/slo.yml"]
    assert "errors" in told.files["rules/slo.yml"]


def test_nobody_to_call_is_warned_of():
    assert ("TELEMETRY-NOBODY", "routes") in notes([PLAIN], TelemetrySettings())
    assert not [code for code, _subject in notes([PLAIN]) if code == "TELEMETRY-NOBODY"]


def test_an_engine_that_is_newer_than_what_was_read_is_named():
    newer = named(demo_plan(), "newer", version="9.1.0")
    host = replace(PLAIN, plans=(newer,))
    assert ("TELEMETRY-ENGINE-VERSION", "newer") in notes([host])


def test_metrics_need_no_key_and_that_is_told():
    plan = demo_plan()
    keyed = replace(plan, deployment=replace(plan.deployment, secrets=("VLLM_API_KEY",)))
    assert ("TELEMETRY-OPEN-METRICS", "qwen3-235b") in notes([replace(PLAIN, plans=(keyed,))])
    assert "authorization" not in telemetry_plan([PLAIN], HEARD).files["prometheus.yml"]


def test_a_host_that_plans_know_and_nobody_watches_is_named():
    plan = spanning(demo_plan(), 0, ("gpu-001", "gpu-009"))
    told = telemetry_plan([replace(PLAIN, plans=(plan,))], HEARD).findings
    (one,) = (one for one in told if one.code == "TELEMETRY-UNKNOWN-HOST")
    assert "gpu-009" in one.message


def test_a_host_twice_or_without_address_is_refused():
    assert refusals([PLAIN, PLAIN]) == {("TELEMETRY-HOST", "gpu-001")}
    assert refusals([replace(PLAIN, address="")]) == {("TELEMETRY-HOST", "gpu-001")}
    assert refusals([replace(PLAIN, name="gpu-002")]) == {("TELEMETRY-HOST", "gpu-002")}
    assert refusals([]) == {("TELEMETRY-NO-HOSTS", "hosts")}


def test_a_rack_that_is_no_label_is_refused():
    assert refusals([replace(PLAIN, rack="a\nb")]) == {("TELEMETRY-LABEL", "gpu-001: rack")}


def test_two_hosts_at_one_address_are_refused():
    other = replace(PLAIN, name="gpu-002", plans=())
    found = refusals([PLAIN, other])
    assert ("TELEMETRY-ADDRESS", "node 10.0.0.1:9100") in found


def test_an_exporter_at_the_port_of_a_replica_is_refused():
    found = refusals([PLAIN], replace(HEARD, ports=Ports(amd=8000)))
    assert found == {("TELEMETRY-ADDRESS", "10.0.0.1:8000")}


def test_targets_that_no_label_tells_apart_are_refused():
    plan = demo_plan()
    twice = replace(named(plan, "qwen3-235b"), deployment=plan.deployment)
    found = refusals([replace(PLAIN, plans=(plan, twice))])
    assert {code for code, _subject in found} == {"TELEMETRY-LABEL"}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (replace(HEARD, scrape_seconds=0), "scrape_seconds"),
        (replace(HEARD, patience=-1.0), "patience"),
        (replace(HEARD, success_objective=1.0), "success_objective"),
        (replace(HEARD, thresholds={"gpu_warm": 3.0}), "thresholds"),
        (
            replace(HEARD, thresholds={"gpu_junction_celsius": -1.0}),
            "thresholds.gpu_junction_celsius",
        ),
        (replace(HEARD, without=("NoSuchAlert",)), "without"),
        (replace(HEARD, routes={"urgent": ("hook",)}), "routes"),
        (replace(HEARD, alertmanagers=("am-1",)), "alertmanagers"),
        (replace(HEARD, ports=Ports(node=0)), "ports.node"),
        (replace(HEARD, cluster=""), "cluster"),
        (replace(HEARD, alertmanager_version="0.19"), "alertmanager_version"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, field):
    assert ("TELEMETRY-SETTING", field) in refusals([PLAIN], settings)


def test_an_slo_of_no_deployment_is_told_and_the_rest_is_watched():
    # All hosts of the deployment may be quarantined.
    plan = telemetry_plan([PLAIN], replace(HEARD, slos={"qwen": "ttft:p90:1s"}))
    (told,) = (one for one in plan.findings if one.code == "TELEMETRY-SLO-UNKNOWN")
    assert (told.severity, told.subject) == ("warning", "qwen")
    assert plan.targets


def test_exporters_are_read_where_the_host_has_them():
    plan = telemetry_plan([replace(PLAIN, amd_port=5001, node_port=9200)], HEARD)
    found = {one.job: one.address for one in plan.targets if one.job in ("amd-metrics", "node")}
    assert found == {"amd-metrics": f"{PLAIN.address}:5001", "node": f"{PLAIN.address}:9200"}


@pytest.mark.parametrize(
    ("receiver", "code"),
    [
        (Receiver("x", "slack"), "TELEMETRY-RECEIVER"),
        (Receiver("x", "webhook"), "TELEMETRY-RECEIVER"),
        (Receiver("x", "webhook", "ftp://a"), "TELEMETRY-RECEIVER"),
        (Receiver("x", "email", to=("a@example.org",)), "TELEMETRY-RECEIVER"),
        (Receiver("x", "pagerduty", secret_file="relative"), "TELEMETRY-RECEIVER"),  # noqa: S106 - a path
        (Receiver("x", "webhook", "https://u:p@alerts.example.org"), "TELEMETRY-SECRET"),
        (Receiver("x", "webhook", "https://alerts.example.org?token=abc"), "TELEMETRY-SECRET"),
    ],
)
def test_a_receiver_that_cannot_work_or_tells_its_secret_is_refused(receiver, code):
    settings = replace(HEARD, receivers=(*HEARD.receivers, receiver))
    assert refusals([PLAIN], settings) == {(code, "x")}


def test_a_receiver_that_is_none_or_twice_is_refused():
    assert refusals([PLAIN], replace(HEARD, routes={"critical": ("gone",)})) == {
        ("TELEMETRY-RECEIVER", "gone")
    }
    assert refusals([PLAIN], replace(HEARD, receivers=HEARD.receivers * 2)) == {
        ("TELEMETRY-RECEIVER", "hook")
    }


def test_a_secret_that_an_old_alertmanager_cannot_read_is_refused():
    receiver = Receiver("x", "pagerduty", secret_file="/etc/x")  # noqa: S106 - a path
    settings = replace(HEARD, receivers=(*HEARD.receivers, receiver), alertmanager_version="0.24")
    assert refusals([PLAIN], settings) == {("TELEMETRY-RECEIVER", "x")}


@pytest.fixture(scope="module")
def held(plan):
    """Return the alerts that each cause holds back, with the labels that must be the same."""
    found = {}
    for rule in yaml.safe_load(plan.files["alertmanager.yml"])["inhibit_rules"]:
        (cause,), (names,) = (
            [matcher.split('"')[1] for matcher in rule[side]]
            for side in ("source_matchers", "target_matchers")
        )
        found[cause] = (set(names.split("|")), rule["equal"])
    return found


def test_a_host_that_is_down_holds_back_what_runs_on_it(held):
    names, equal = held["HostDown"]
    assert equal == ["host"]
    assert {"ReplicaDown", "AmdExporterDown", "GpuLost", "RouterDown"} <= names
    assert "HostDown" not in names


def test_an_exporter_that_is_down_holds_back_what_it_would_say(held):
    assert {"DiskFull", "NumaBalancingOn"} <= held["NodeExporterDown"][0]
    assert "NumaBalancingOn" in held["TextfileStale"][0]
    assert "DiskFull" not in held["TextfileStale"][0]
    assert "GpuHot" in held["AmdExporterDown"][0]


def test_what_is_not_critical_holds_back_nothing_critical(held):
    severities = {
        one["alert"]: one["severity"] for one in knowledge("telemetry/alerts.yml")["alerts"]
    }
    for cause, (names, _equal) in held.items():
        assert severities[cause] == "critical" or "critical" not in {
            severities[name] for name in names
        }


def test_only_labels_that_both_alerts_have_are_compared(held):
    labels = {one["alert"]: one["labels"] for one in knowledge("telemetry/alerts.yml")["alerts"]}
    for cause, (names, equal) in held.items():
        for name in (cause, *names):
            assert set(equal) <= set(labels[name]), name
