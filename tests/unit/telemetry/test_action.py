# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decision of the role monitoring as a playbook meets it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import save_documents
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import HostFacts, Survey

from support.demo import demo_plan
from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: monitor-001
  connection: local
  gather_facts: false
  tasks:
    - apiary.instinct.decide:
        role: monitoring
        evidence: "{{ evidence }}"
      vars:
        monitoring_slos: {qwen3-235b: "ttft:p90:2500ms"}
        monitoring_receivers: [{name: hook, kind: webhook, url: "https://alerts.example.org"}]
        monitoring_routes: {critical: [hook]}
        monitoring_grafana: true
      register: decided
    - apiary.instinct.decide:
        role: monitoring
        evidence: "{{ evidence }}"
      vars:
        monitoring_routes: {critical: [gone]}
      register: refused
      ignore_errors: true
    - save:
        content: "{{ [decided, refused] | to_json }}"
        dest: result.json
"""
WATCHED = [
    {"host": "gpu-001", "address": "192.0.2.11", "artifacts": "artifacts/gpu-001", "rack": "r1"},
    {"host": "gpu-002", "address": "192.0.2.12", "artifacts": "artifacts/gpu-002"},
    {"host": "gpu-003", "address": "192.0.2.13", "artifacts": "artifacts/gpu-003"},
    {"host": "router-001", "address": "192.0.2.1", "router_port": 8405, "exporters": ["node"]},
]
for one in WATCHED:
    one["amd_packaged_only"] = True
EVIDENCE = {
    "schema": "apiary.evidence/v1",
    "host": "monitor-001",
    "collected_at": "2026-11-21T10:39:00Z",
    "collector": "2",
    "files": {"/etc/os-release": "ID=debian\n"},
}
# What a host's system is, and whether AMD has a package of its exporter for it.
SYSTEMS = {"gpu-001": "ubuntu 24.04", "gpu-003": "debian 12"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Run the play over saved plans; return what both tasks said, and the output."""
    place = tmp_path_factory.mktemp("play")
    for host in ("gpu-001", "gpu-002"):
        text = dumps(replace(demo_plan(), host=host))
        save_documents(place / "artifacts" / host, {"qwen3-235b/plan.json": text})
    (place / "artifacts/gpu-002/quarantine.json").write_text("{}")
    for host, system in SYSTEMS.items():
        path = place / "artifacts" / host / "survey.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumps(Survey(host, "2026-11-22T11:13:57Z", facts=HostFacts(os=system))))
    (place / "play.yml").write_text(PLAY)
    variables = {"monitoring_hosts": WATCHED, "evidence": EVIDENCE}
    variables["ansible_python_interpreter"] = sys.executable
    (place / "variables.json").write_text(json.dumps(variables))
    done = run_playbook(
        *("-vvv", "-i", "monitor-001,", "play.yml", "-e", "@variables.json"), cwd=place
    )
    said = done.stdout + done.stderr
    assert (place / "result.json").exists(), said[-2000:]
    return (*json.loads((place / "result.json").read_text()), said)


def content(decided):
    """Return the texts below the role's directory, and the paths of dashboards."""
    resources = decided["resources"]
    files = [file for item in resources for file in item.get("files", [])]
    below = "/etc/prometheus/apiary/"
    texts = {
        file["path"].removeprefix(below): file["content"]
        for file in files
        if file["path"].startswith(below)
    }
    boards = [item["path"] for item in resources if "/dashboards/" in item.get("path", "")]
    return texts, boards


def test_saved_plans_become_targets_and_files(told):
    decided, _refused, _said = told
    engines = json.loads(content(decided)[0]["targets/vllm.json"])
    assert [one["targets"] for one in engines] == [["192.0.2.11:8000"], ["192.0.2.11:8001"]]
    assert engines[0]["labels"]["rack"] == "r1"
    assert {"prometheus.yml", "alertmanager.yml", "rules/alerts.yml"} <= set(content(decided)[0])
    assert content(decided)[1]
    assert not decided["changed"]


def test_a_quarantined_host_and_one_without_plan_are_watched_and_serve_nothing(told):
    decided, _refused, _said = told
    nodes = json.loads(content(decided)[0]["targets/node.json"])
    names = [one["labels"]["host"] for one in nodes]
    assert sorted(names) == ["gpu-001", "gpu-002", "gpu-003", "router-001"]


def test_amds_exporter_is_not_read_where_it_does_not_come(told):
    # Of gpu-002 nothing is known, so it is expected.
    decided, _refused, _said = told
    found = json.loads(content(decided)[0]["targets/amd-metrics.json"])
    assert sorted(one["labels"]["host"] for one in found) == ["gpu-001", "gpu-002"]


def test_a_refusal_is_findings_and_no_traceback(told):
    _decided, refused, said = told
    assert [one["code"] for one in refused["findings"]] == ["TELEMETRY-RECEIVER"]
    assert "Traceback" not in said
