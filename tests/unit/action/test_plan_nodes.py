# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas over hosts, as a playbook meets them: groups of the inventory, compared."""

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document

from support.demo import demo_deployment
from support.playbooks import run_playbook
from support.topology.simulated import simulated_evidence

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        __probed:
          evidence: >-
            {{ lookup('ansible.builtin.file', inventory_hostname ~ '.json') | from_json }}
      when: inventory_hostname not in (unseen | default([]))
    - block:
        - apiary.instinct.plan:
            deployments: ["{{ apiary_deployment }}"]
            evidence: >-
              {{ lookup('ansible.builtin.file', inventory_hostname ~ '.json') | from_json }}
            hosts: "{{ groups['all'] }}"
          register: decided
      rescue:
        - ansible.builtin.set_fact:
            decided: "{{ ansible_failed_result }}"
      always:
        - save:
            content: "{{ decided | to_json }}"
            dest: "{{ inventory_hostname }}-result.json"
"""


@pytest.fixture
def decide(tmp_path):
    """Plan one replica over hosts with these variables (and faults); return results by host."""

    def decide(hosts, *options):
        asked = to_document(demo_deployment())
        asked["layout"] = {
            "tensor_parallel_size": 8,
            "pipeline_parallel_size": 2,
            "nodes": 2,
            "expert_parallel": True,
        }
        for name, variables in hosts.items():
            evidence = simulated_evidence(*variables.pop("faults", ()))
            (tmp_path / f"{name}.json").write_text(json.dumps(evidence))
        inventory = {"all": {"hosts": hosts, "vars": {"apiary_deployment": asked}}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (tmp_path / "play.yml").write_text(PLAY)
        done = run_playbook("-i", "hosts.yml", "play.yml", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return {name: json.loads((tmp_path / f"{name}-result.json").read_text()) for name in hosts}

    return decide


def codes(result):
    return [item["code"] for item in result["findings"]]


def test_hosts_of_the_inventory_make_a_group(decide):
    found = decide(
        {
            "gpu-001": {"apiary_address": "10.0.0.1", "apiary_interface": "ens1"},
            "gpu-002": {"apiary_address": "10.0.0.2", "apiary_interface": "ens1"},
        }
    )
    for rank, (name, result) in enumerate(found.items()):
        plan = result["plan"]
        assert plan["node"] == {
            "rank": rank,
            "size": 2,
            "master_address": "10.0.0.1",
            "hosts": ["gpu-001", "gpu-002"],
        }
        (replica,) = plan["replicas"]
        assert replica["env"]["VLLM_HOST_IP"] == f"10.0.0.{rank + 1}"
        assert ("--headless" in replica["argv"]) == (name == "gpu-002")
        assert codes(result) == []


def test_a_host_that_differs_or_is_left_over_is_refused(decide):
    found = decide(
        {
            "gpu-001": {"apiary_address": "10.0.0.1"},
            "gpu-002": {"apiary_address": "10.0.0.2", "faults": ["missing=3"]},
            "gpu-003": {"apiary_address": "10.0.0.3"},
        }
    )
    assert set(codes(found["gpu-001"])) == {"PLAN-NODES-DIFFER"}
    assert codes(found["gpu-003"]) == ["PLAN-NODES-GROUP"]


def test_a_group_may_be_named_and_one_host_unseen(decide):
    found = decide(
        {
            "gpu-001": {"apiary_address": "10.0.0.1", "apiary_node_group": "rail-a"},
            "gpu-002": {"apiary_address": "10.0.0.2"},
            "gpu-003": {"apiary_address": "10.0.0.3", "apiary_node_group": "rail-a"},
        },
        *("-e", '{"unseen": ["gpu-003"]}'),
    )
    assert found["gpu-001"]["plan"]["node"]["hosts"] == ["gpu-001", "gpu-003"]
    assert codes(found["gpu-001"]) == ["PLAN-NODES-UNSEEN"]
    assert codes(found["gpu-002"]) == ["PLAN-NODES-GROUP"]
