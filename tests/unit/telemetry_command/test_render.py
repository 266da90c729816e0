# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary telemetry render`: what it reads, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import save_documents
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import HostFacts, Survey

from apiary.app.cli import main
from support.demo import demo_plan
from support.topology.topologies import mi325x

INVENTORY = """
gpu_hosts:
  vars: {apiary_artifacts: ARTIFACTS}
  hosts:
    gpu-001: {ansible_host: 10.0.0.1, apiary_address: 10.1.0.1, apiary_rack: r1}
    gpu-002: {ansible_host: 10.0.0.2, apiary_rack: r2, apiary_failure_domain: row-a}
routers:
  hosts:
    router-001: {ansible_host: 10.0.0.9, router_admin_port: 9999}
    gpu-002:
monitoring:
  hosts:
    monitor-001: {ansible_host: 10.0.0.20, apiary_rack: r9}
"""


@pytest.fixture
def artifacts(tmp_path):
    directory = tmp_path / "artifacts"
    for name in ("gpu-001", "gpu-002"):
        text = dumps(replace(demo_plan(), host=name))
        save_documents(directory / name, {"qwen3-235b/plan.json": text})
        (directory / name / "topology.json").write_text(dumps(replace(mi325x(), host=name)))
    return directory


@pytest.fixture
def inventory(tmp_path, artifacts):
    path = tmp_path / "hosts.yml"
    path.write_text(INVENTORY.replace("ARTIFACTS", str(artifacts)))
    return path


@pytest.fixture
def ran(capsys, tmp_path):
    """Run the command; return its exit code, stdout and stderr."""

    def run(*words, out=tmp_path / "out"):
        where = () if out is None else ("--out", out)
        code = main(["telemetry", "render", *map(str, (*words, *where))])
        said = capsys.readouterr()
        return code, said.out, said.err

    run.out = tmp_path / "out"
    return run


def addresses(ran, job):
    """Return labels by address of a job's targets."""
    groups = json.loads((ran.out / f"targets/{job}.json").read_text())
    return {address: one["labels"] for one in groups for address in one["targets"]}


def test_all_that_prometheus_and_grafana_need_is_written(ran, inventory):
    code, out, _err = ran("-i", inventory)
    assert code == 0
    written = {str(path.relative_to(ran.out)) for path in ran.out.rglob("*") if path.is_file()}
    assert {
        "prometheus.yml",
        "alertmanager.yml",
        "rules/recording.yml",
        "rules/alerts.yml",
    } < written
    assert {one for one in written if one.startswith("grafana/dashboards/")} == {
        f"grafana/dashboards/apiary-{name}.json"
        for name in ("fleet", "deployment", "host", "router")
    }
    told = {line.split(str(ran.out) + "/")[1] for line in out.splitlines()}
    assert told == written - {".apiary-telemetry.json"}
    for name in yaml.safe_load((ran.out / "prometheus.yml").read_text())["rule_files"]:
        assert name in written


def test_hosts_are_where_the_inventory_says(ran, inventory):
    ran("-i", inventory)
    nodes = addresses(ran, "node")
    assert nodes["10.1.0.1:9100"]["rack"] == "r1"
    assert nodes["10.0.0.2:9100"]["failure_domain"] == "row-a"
    assert nodes["10.0.0.9:9100"]["host"] == "router-001"
    assert set(addresses(ran, "haproxy")) == {"10.0.0.9:9999", "10.0.0.2:8405"}
    assert nodes["10.0.0.20:9100"] == {"failure_domain": "r9", "host": "monitor-001", "rack": "r9"}
    assert set(addresses(ran, "amd-metrics")) == {"10.1.0.1:5000", "10.0.0.2:5000"}
    assert len(addresses(ran, "vllm")) == 2 * len(demo_plan().replicas)


def test_a_limit_is_of_gpu_hosts_alone(ran, inventory):
    ran("-i", inventory, "--limit", "gpu-001")
    assert {one["host"] for one in addresses(ran, "vllm").values()} == {"gpu-001"}
    assert {one["host"] for one in addresses(ran, "haproxy").values()} == {"gpu-002", "router-001"}
    assert set(addresses(ran, "amd-metrics")) == {"10.1.0.1:5000"}


def test_without_amds_exporter_none_is_read(ran, inventory):
    text = inventory.read_text().replace("apiary_rack: r1}", "telemetry_amd_method: none}")
    inventory.write_text(text)
    ran("-i", inventory)
    assert set(addresses(ran, "amd-metrics")) == {"10.0.0.2:5000"}


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({}, {"10.0.0.2:5000"}),
        ({"telemetry_amd_suite": "noble"}, {"10.0.0.1:5000", "10.0.0.2:5000"}),
        (
            {"telemetry_amd_digest": "sha256:0", "telemetry_amd_port": 5001},
            {"10.0.0.1:5001", "10.0.0.2:5000"},
        ),
    ],
)
def test_where_amd_has_no_package_it_takes_an_image_or_a_suite(
    ran, inventory, artifacts, told, read
):
    for host, system in (("gpu-001", "debian 12"), ("gpu-002", "ubuntu 24.04")):
        survey = Survey(host, "2026-11-22T09:00:00Z", facts=HostFacts(os=system))
        (artifacts / host / "survey.json").write_text(dumps(survey))
    variables = yaml.safe_dump({"apiary_address": "10.0.0.1", **told}, default_flow_style=True)
    text = re.sub(r"(gpu-001:) {[^}]*}", rf"\1 {variables.strip()}", inventory.read_text())
    inventory.write_text(text)
    ran("-i", inventory)
    assert set(addresses(ran, "amd-metrics")) == read


def test_a_host_without_amds_exporter_and_without_plan_is_told(ran, inventory, artifacts):
    text = inventory.read_text().replace("apiary_rack: r1}", "telemetry_amd_method: none}")
    inventory.write_text(text)
    (artifacts / "gpu-001/qwen3-235b/plan.json").unlink()
    assert "TELEMETRY-NO-PLAN: gpu-001" in ran("-i", inventory)[2]


def test_node_exporters_are_read_at_their_hosts_port(ran, inventory):
    text = inventory.read_text().replace("apiary_rack: r1}", "telemetry_node_port: 9200}")
    inventory.write_text(text)
    ran("-i", inventory)
    assert "10.1.0.1:9200" in addresses(ran, "node")


@pytest.mark.parametrize("cause", ["no plan", "edited plan", "quarantine"])
def test_a_host_that_serves_nothing_is_watched_and_told(ran, inventory, artifacts, cause):
    if cause == "quarantine":
        (artifacts / "gpu-001/quarantine.json").write_text("{}")
    elif cause == "edited plan":
        path = artifacts / "gpu-001/qwen3-235b/plan.json"
        path.write_text(path.read_text() + " ")
    else:
        (artifacts / "gpu-001/qwen3-235b/plan.json").unlink()
    code, _out, err = ran("-i", inventory)
    assert code == 0
    assert "TELEMETRY-NO-PLAN: gpu-001" in err
    assert {one["host"] for one in addresses(ran, "vllm").values()} == {"gpu-002"}
    assert "10.1.0.1:9100" in addresses(ran, "node")


def test_without_an_inventory_the_hosts_with_plans_are_meant(ran, artifacts):
    code, _out, _err = ran("--artifacts", artifacts)
    assert code == 0
    assert set(addresses(ran, "node")) == {"gpu-001:9100", "gpu-002:9100"}
    assert not (ran.out / "grafana/dashboards/apiary-router.json").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"slos": {"qwen3-235b": "ttft:p90:2s"}},
        {"monitoring_slos": {"qwen3-235b": "ttft:p90:2s"}, "monitoring_retention": "30d"},
    ],
    ids=["settings", "variables of the role"],
)
def test_limits_come_from_the_settings(ran, artifacts, tmp_path, settings):
    file = tmp_path / "settings.yml"
    file.write_text(yaml.safe_dump(settings))
    code, _out, err = ran("--artifacts", artifacts, "--settings", file)
    assert code == 0
    assert "TELEMETRY-SLO-MISSING" not in err
    assert "slo: ttft_p90" in (ran.out / "rules/slo.yml").read_text()


def test_the_roles_own_ports_of_its_programs_count(ran, artifacts, tmp_path):
    file = tmp_path / "settings.yml"
    variables = {
        "monitoring_prometheus_port": 9191,
        "monitoring_alertmanager_port": 9192,
        "monitoring_ports": {"node": 9200, "alertmanager": 9193},
    }
    file.write_text(yaml.safe_dump(variables))
    code, _out, _err = ran("--artifacts", artifacts, "--settings", file)
    assert code == 0
    assert set(addresses(ran, "prometheus")) == {"127.0.0.1:9191"}
    assert set(addresses(ran, "alertmanager")) == {"127.0.0.1:9193"}
    assert set(addresses(ran, "node")) == {"gpu-001:9200", "gpu-002:9200"}


def test_a_second_run_touches_nothing(ran, artifacts):
    ran("--artifacts", artifacts)
    before = {path: path.stat().st_mtime_ns for path in ran.out.rglob("*")}
    code, out, _err = ran("--artifacts", artifacts)
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in ran.out.rglob("*")} == before
    assert "files are as they were" in out


def test_what_others_have_there_stays(ran, inventory, artifacts):
    ran("-i", inventory)
    theirs = ran.out / "grafana/dashboards/mine.json"
    theirs.write_text("{}")
    assert ran("--artifacts", artifacts)[0] == 0
    assert theirs.read_text() == "{}"


def test_nothing_is_written_where_something_is_wrong(ran, artifacts, tmp_path):
    file = tmp_path / "settings.yml"
    file.write_text("scrape_seconds: 0\n")
    code, out, err = ran("--artifacts", artifacts, "--settings", file)
    assert code == 1
    assert "TELEMETRY-SETTING" in err
    assert not ran.out.exists()
    assert out == ""


def test_json_tells_what_became_of_each_file(ran, artifacts):
    code, out, err = ran("--artifacts", artifacts, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["files"]["prometheus.yml"] == "written"
    assert told["schema"] == "apiary.telemetry-files/v1"
    assert {one["code"] for one in told["findings"]} == {
        one["code"] for one in json.loads(err)["findings"]
    }


@pytest.mark.parametrize("words", [(), ("--limit", "gpu-001")])
def test_wrong_usage_is_2(ran, words):
    assert ran(*words)[0] == 2


def test_without_a_place_to_write_it_is_wrong_usage(ran, artifacts):
    assert ran("--artifacts", artifacts, out=None)[0] == 2


@pytest.mark.parametrize("content", ["no: such: yaml", "[1, 2]", "unknown_setting: 1"])
def test_settings_that_cannot_be_read_are_a_finding(ran, artifacts, tmp_path, content):
    file = tmp_path / "settings.yml"
    file.write_text(content)
    code, _out, err = ran("--artifacts", artifacts, "--settings", file)
    assert code == 1
    assert "error: " in err


def test_a_directory_without_plans_is_a_finding(ran, tmp_path):
    code, _out, err = ran("--artifacts", tmp_path)
    assert code == 1
    assert "FILE-UNREADABLE" in err
    assert ran("--artifacts", tmp_path / "none")[0] == 1
