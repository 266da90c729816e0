# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decision of the role router as a playbook meets it, and what it shows of secrets."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import save_documents
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import (
    PlannedHost,
    pools_from_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Router,
    RouterSettings,
)

from support.demo import demo_plan
from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
KEY = "planted-" + "key-of-a-test"
PLAY = """
- hosts: router-001
  connection: local
  gather_facts: false
  tasks:
    - block:
        - apiary.instinct.decide:
            role: router
            evidence: "{{ evidence }}"
          vars:
            router_plans: [gpu-001, gpu-002]
            router_peers: [router-001, {host: router-002, address: 192.0.2.2}]
            router_virtual_addresses: [192.0.2.10/24]
            router_virtual_interface: eth0
          register: decided
      rescue:
        - ansible.builtin.set_fact:
            decided: "{{ ansible_failed_result }}"
      always:
        - save:
            content: "{{ decided | to_json }}"
            dest: result.json
"""
EVIDENCE = {
    "schema": "apiary.evidence/v1",
    "host": "router-001",
    "collected_at": "2026-11-21T10:39:00Z",
    "collector": "2",
    "files": {"/etc/os-release": "ID=debian\n"},
}
INVENTORY = """
router-001 apiary_address=192.0.2.1
router-003 apiary_address=192.0.2.3
gpu-001 ansible_host=192.0.2.11
gpu-002 ansible_host=192.0.2.12 apiary_address=198.51.100.2
"""


@pytest.fixture
def decide(tmp_path):
    """Run the action over the artifacts below tmp_path; return its result and its output."""

    def decide(gathered=None, **variables):
        (tmp_path / "host_vars").mkdir(exist_ok=True)
        (tmp_path / "host_vars/router-003.json").write_text(
            json.dumps({"__router_gathered": gathered} if gathered else {})
        )
        (tmp_path / "play.yml").write_text(PLAY)
        (tmp_path / "hosts").write_text(INVENTORY)
        (tmp_path / "variables.json").write_text(
            json.dumps(
                {
                    "ansible_python_interpreter": sys.executable,
                    "evidence": EVIDENCE,
                    "apiary_artifacts": str(tmp_path / "artifacts"),
                    **variables,
                }
            )
        )
        done = run_playbook(
            *("-vvv", "-i", "hosts", "play.yml", "-e", "@variables.json"), cwd=tmp_path
        )
        told = done.stdout + done.stderr
        assert (tmp_path / "result.json").exists(), told[-2000:]
        return json.loads((tmp_path / "result.json").read_text()), told

    return decide


@pytest.fixture
def artifacts(tmp_path):
    """Save a plan of the demo's deployment, or of one with another name, for a host."""

    def save(host, name=None):
        plan = demo_plan()
        if name:
            plan = replace(
                plan,
                deployment=replace(plan.deployment, name=name),
                target=f"apiary-{name}.target",
                replicas=tuple(
                    replace(one, unit=f"apiary-{name}-{index}.service", port=8100 + index)
                    for index, one in enumerate(plan.replicas)
                ),
            )
        directory, name = tmp_path / "artifacts" / host, plan.deployment.name
        documents = {f"{name}/plan.json": dumps(replace(plan, host=host))}
        save_documents(directory, documents, whole=False)
        return directory / name / "plan.json"

    return save


def test_all_hosts_plans_become_pools_at_the_routers_addresses(decide, artifacts):
    artifacts("gpu-001")
    artifacts("gpu-002")
    told, _said = decide()
    assert told["plan"]["pools"]["qwen3-235b"]["port"] == 8080
    assert told["plan"]["pools"]["qwen3-235b"]["servers"] == {
        "gpu-001-0": "192.0.2.11:8000",
        "gpu-001-1": "192.0.2.11:8001",
        "gpu-002-0": "198.51.100.2:8000",
        "gpu-002-1": "198.51.100.2:8001",
    }


def test_every_deployment_of_a_host_has_its_pool(decide, artifacts):
    artifacts("gpu-001")
    artifacts("gpu-001", "small")
    artifacts("gpu-002", "small")
    told, _said = decide()
    assert {name: len(pool["servers"]) for name, pool in told["plan"]["pools"].items()} == {
        "qwen3-235b": 2,
        "small": 4,
    }


def test_a_plan_that_no_run_decided_is_not_followed(decide, artifacts):
    artifacts("gpu-001")
    other = artifacts("gpu-002")
    edited = other.read_text().replace("8000", "8002")
    other.write_text(edited)
    stray = other.parents[2] / "gpu-003/qwen3-235b/plan.json"
    stray.parent.mkdir(parents=True)
    stray.write_text(edited)
    told, said = decide()
    servers = told["plan"]["pools"]["qwen3-235b"]["servers"]
    assert sorted(servers) == ["gpu-001-0", "gpu-001-1"]
    assert f"gpu-002: has {other}, which no run of this controller decided" in " ".join(
        said.replace("[WARNING]: ", "").split()
    )


def test_hosts_without_a_plan_and_quarantined_ones_are_warned_of(decide, artifacts):
    artifacts("gpu-001")
    artifacts("gpu-002").parents[1].joinpath("quarantine.json").write_text("{}")
    told, said = decide()
    assert sorted(told["plan"]["pools"]["qwen3-235b"]["servers"]) == ["gpu-001-0", "gpu-001-1"]
    assert "gpu-002: is quarantined; nothing is routed to it" in " ".join(said.split())


def test_a_router_takes_the_ports_of_another_one_in_the_play(decide, artifacts):
    artifacts("gpu-001")
    artifacts("gpu-001", "alpha")
    assert {name: pool["port"] for name, pool in decide()[0]["plan"]["pools"].items()} == {
        "alpha": 8080,
        "qwen3-235b": 8081,
    }
    plans = [PlannedHost("gpu-001", "192.0.2.11", demo_plan())]
    settings = RouterSettings()
    document = dumps(Router(settings, pools_from_plans(plans, settings)[0]))
    ran = {"argv": ["cat"], "exit": 0, "stdout": document, "stderr": "", "seconds": 0.0}
    gathered = {"evidence": {**EVIDENCE, "commands": {"router_document": ran}}}
    told, _said = decide(gathered, router_peers=["router-001", "router-003"])
    assert {name: pool["port"] for name, pool in told["plan"]["pools"].items()} == {
        "qwen3-235b": 8080,
        "alpha": 8081,
    }


def test_a_refusal_is_findings_and_no_traceback(decide):
    told, said = decide()
    assert told["findings"][0]["code"] == "ROUTER-NO-REPLICAS"
    assert "Traceback" not in said


def test_no_key_is_shown_however_much_is_asked(decide, artifacts):
    artifacts("gpu-001")
    told, said = decide(router_api_keys={"lab": KEY})
    assert any("keys.map" in item["path"] for item in told["resources"][0]["files"])
    assert KEY not in said
    assert KEY not in json.dumps(told)
    told, said = decide(router_api_keys={"lab": "short-" + "key"})
    assert "ROUTER-KEY" in said
    assert "short-key" not in said


def test_routers_are_found_in_the_inventory(decide, artifacts):
    artifacts("gpu-001")
    told, _said = decide()
    [main] = told["resources"][-1]["files"]
    assert "unicast_src_ip 192.0.2.1\n" in main["content"]


def test_resources_are_added_and_omitted(decide, artifacts):
    artifacts("gpu-001")
    extra = {"kind": "file", "path": "/etc/motd", "content": "a router\n"}
    told, _said = decide(
        router_extra_resources=[extra], router_omit=["configuration keepalived.service"]
    )
    fields = ("service", "name", "path", "kind")
    named = [next(item[one] for one in fields if item.get(one)) for item in told["resources"]]
    kernel = ["/etc/sysctl.d/90-apiary-router.conf", "live"]
    assert named == ["haproxy.service", *kernel, "apiary-router.timer", "/etc/motd"]


def test_a_new_router_gets_its_programs_first(decide, artifacts):
    artifacts("gpu-001")
    told, _said = decide()
    assert told["plan"]["programs"] == [
        {"kind": "packages", "manager": "apt", "names": ["haproxy", "keepalived"]}
    ]
