# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every alert fires where it must and is silent where it must not, by Prometheus' own engine.

The cases are data: cases/*.yml has for each alert `fires` and `quiet`, and more under any name
(silent unless it says `fires: true`). `series` are what promtool reads, one sample a `step` (1m);
REPLICA and the like stand for labels of targets, see LABELS. `expect` names sets of labels that
the alert must have exactly, `with` more of them. An alert that waits must be silent at `soon`
(`at` without the wait, where nothing else is said), although what it is about is there already.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.promql import (
    rule_file,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.rules import (
    alert_group,
    alert_names,
    recording_groups,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.slo import slo_groups
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    Objective,
    TelemetrySettings,
)

from support.each import each
from support.telemetry.prometheus import check

CASES = Path(__file__).parent / "cases"
OBJECTIVES = (
    Objective("demo", "ttft_p90", 0.9, 1.0, 1.0),
    Objective("demo", "tpot_p90", 0.9, 0.05, 0.05),
    Objective("demo", "errors", 0.995),
)
PLACE = {"host": "gpu-001", "rack": "r1", "failure_domain": "power-1"}
NODE = {**PLACE, "job": "node", "instance": "10.0.0.1:9100"}
AMD_TARGET = {**PLACE, "job": "amd-metrics", "instance": "10.0.0.1:5000"}
ENGINE = {"job": "vllm", "model": "org/m", "engine_version": "0.33.0", "deployment": "demo"}
ROUTER = {"job": "haproxy", "instance": "10.0.0.9:8405", "host": "router-001", "rack": "r2"}
NAMED = {"gpu": "0000:05:00.0", "numa_node": "0", "hive": "h1"}
REPLICA = {**PLACE, **ENGINE, "replica": "0", "numa_node": "0", "instance": "10.0.0.1:8000"}
GPU_OF = {"deployment": "demo", "replica": "0"}
LABELS = {
    "REPLICA": REPLICA,
    "OTHER": {**REPLICA, "host": "gpu-002", "instance": "10.0.0.2:8000"},
    "NODE": NODE,
    "AMD_TARGET": AMD_TARGET,
    "AMD": {**AMD_TARGET, "gpu_id": "0", "serial_number": "S0"},
    "AMD_1": {**AMD_TARGET, "gpu_id": "1", "serial_number": "S1"},
    "INFO": {**NODE, **NAMED, **GPU_OF, "gpu_id": "0", "serial_number": "S0"},
    "ROUTER": ROUTER,
    "ROUTER_NODE": {**ROUTER, "job": "node", "instance": "10.0.0.9:9100"},
    "PROMETHEUS": {"job": "prometheus", "instance": "127.0.0.1:9090"},
    "PEER": {"job": "prometheus", "instance": "10.0.0.21:9090"},
    "ALERTMANAGER": {"job": "alertmanager", "instance": "127.0.0.1:9093"},
}
EXPECTED = {
    "deployment": {"deployment": "demo"},
    "host": {"host": "gpu-001"},
    "replica_index": {"replica": "0"},
    "replica": {**PLACE, "deployment": "demo", "replica": "0", "numa_node": "0"},
    "place": PLACE,
    "node": NODE,
    "amd": AMD_TARGET,
    "gpu": {**PLACE, **NAMED, **GPU_OF, "gpu_id": "0"},
    "router": ROUTER,
    "router_node": {**ROUTER, "job": "node", "instance": "10.0.0.9:9100"},
    "router_pool": {"host": "router-001", "deployment": "demo"},
    "prometheus": LABELS["PROMETHEUS"],
    "alertmanager": LABELS["ALERTMANAGER"],
}
GPU_SERIES = {"apiary_gpu_info{INFO}": "1x5000", "amd_gpu_health{AMD}": "1x5000"}
OF_A_CASE = ("step", "gpu")


def written(labels):
    return ", ".join(f'{name}="{value}"' for name, value in labels.items())


def series(text):
    """Return a series with the names of sets in its braces replaced by their labels."""
    inside = re.compile(r"(?<=[{ ])(" + "|".join(sorted(LABELS, reverse=True)) + r")(?=[,}])")
    return inside.sub(lambda found: written(LABELS[found[1]]), text)


@functools.cache
def all_cases():
    """Return each alert's cases by name, from every file."""
    cases = {}
    for path in sorted(CASES.glob("*.yml")):
        # All of it as text: 0x9, ten times 0, would be a hexadecimal number.
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - it makes nothing but text
        assert not cases.keys() & entries.keys(), path
        cases |= entries
    return cases


def fires(name, case):
    return name == "fires" or "fires" in case


ALERTS = {one["alert"]: one for one in knowledge("telemetry/alerts.yml")["alerts"]}


def test_of(alert, entry, name):
    """Return one test as promtool reads it."""
    case = entry[name]
    given = {**(GPU_SERIES if case.get("gpu", entry.get("gpu")) else {}), **case["series"]}
    labels = {"severity": ALERTS[alert]["severity"], **case.get("with", {})}
    for part in case.get("expect", ()):
        labels |= EXPECTED[part]
    expected = [{"exp_labels": labels}] if fires(name, case) else []
    return {
        "name": f"{alert}: {name}",
        "interval": case.get("step", entry.get("step", "1m")),
        "input_series": [
            {"series": series(text), "values": values} for text, values in given.items()
        ],
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": alerts}
            for at, alerts in ((soon(alert, case), []), (case["at"], expected))
            if at
        ],
    }


def soon(alert, case):
    """Return a time at which a case that fires is not old enough; None where nothing waits."""
    wait = ALERTS[alert].get("for")
    if "expect" not in case or not wait:
        return None
    return case.get("soon", f"{minutes(case['at']) - minutes(wait)}m")


def minutes(time):
    return int(time[:-1]) * {"m": 1, "h": 60, "d": 1440}[time[-1]]


test_of.__test__ = False


def needed(alert):
    """Return an alert, and before it what it is recorded from, which is all that promtool runs.

    Without annotations, which promtool would compare too.
    """
    groups = (*recording_groups(), *slo_groups(OBJECTIVES))
    (rule,) = (one for one in alert_group(TelemetrySettings())["rules"] if one["alert"] == alert)
    wanted, chosen = [rule], []
    while wanted:
        one = wanted.pop()
        chosen.append(one)
        read = set(re.findall(r"apiary:[a-z0-9_:]+", one["expr"]))
        rules = [own for group in groups for own in group["rules"] if own["record"] in read]
        wanted += [own for own in rules if own not in chosen and own not in wanted]
    kept = [{**group, "rules": [r for r in group["rules"] if r in chosen]} for group in groups]
    bare = {"name": "alert", "rules": [{**rule, "annotations": {}}]}
    return [group for group in (*kept, bare) if group["rules"]]


def write(place, alert, tests, step="1m"):
    """Write tests of one alert as promtool reads them; return the file's name."""
    groups = needed(alert)
    document = {
        "rule_files": [f"{alert}-rules.yml"],
        "evaluation_interval": step,
        "group_eval_order": [group["name"] for group in groups],
        "tests": tests,
    }
    (place / f"{alert}-rules.yml").write_text(rule_file(groups))
    (place / f"{alert}.yml").write_text(yaml.safe_dump(document, sort_keys=False, width=1000))
    return f"{alert}.yml"


def test_every_alert_fires_where_it_must_and_nowhere_else(tmp_path):
    files = []
    for alert in alert_names():
        entry = all_cases()[alert]
        tests = [test_of(alert, entry, name) for name in entry if name not in OF_A_CASE]
        files.append(write(tmp_path, alert, tests, entry.get("step", "1m")))
    good, said = check("promtool", "test", "rules", *files, at=tmp_path)
    assert said.count("SUCCESS") == len(files), said
    assert good, said


@each(alert_names())
def test_every_alert_has_a_case_that_fires_and_one_that_must_not(alert):
    entry = all_cases()[alert]
    assert fires("fires", entry["fires"])
    assert entry["fires"]["expect"]
    assert entry["quiet"]["series"]
    assert not fires("quiet", entry["quiet"])


def test_no_case_is_of_an_alert_that_is_gone():
    assert set(all_cases()) == set(alert_names())


def test_a_case_that_does_not_hold_is_told(tmp_path):
    entry = all_cases()["ReplicaDown"]
    wrong = {**entry, "fires": {**entry["fires"], "series": {"up{REPLICA}": "1x20"}}}
    files = [
        write(tmp_path, "ReplicaDown", [test_of("ReplicaDown", wrong, "fires")]),
        write(tmp_path, "HostDown", [test_of("HostDown", all_cases()["HostDown"], "fires")]),
    ]
    good, said = check("promtool", "test", "rules", *files, at=tmp_path)
    assert not good
    assert "ReplicaDown" in said
