# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan action as a playbook meets it: the same refusals as by command, before any host."""

import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document

from support.demo import demo_deployment
from support.playbooks import run_playbook
from support.topology.simulated import simulated_evidence

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: gpu-001
  connection: local
  gather_facts: false
  tasks:
    - block:
        - apiary.instinct.plan:
            deployments: "{{ lookup('ansible.builtin.file', 'deployments.json') | from_json }}"
            evidence: "{{ lookup('ansible.builtin.file', 'evidence.json') | from_json }}"
            dest: made
            keep: "{{ running | default({}) }}"
            running: "{{ present | default([]) }}"
            remove_others: "{{ remove | default(false) }}"
          register: decided
      rescue:
        - ansible.builtin.set_fact:
            decided: "{{ ansible_failed_result }}"
      always:
        - save:
            content: "{{ decided | to_json }}"
            dest: result.json
"""
SMALL = [
    {
        **to_document(demo_deployment()),
        "name": "small",
        "base_port": 8100,
        "layout": {"tensor_parallel_size": 2, "replicas": 2, "expert_parallel": True},
        "limits": {"max_model_len": 8192},
    }
]


@pytest.fixture
def decide(tmp_path):
    """Run the action on a simulated host with some faults; return its result."""

    def decide(*faults, options=(), whole=(), others=(), **changes):
        evidence = simulated_evidence(*faults)
        (tmp_path / "evidence.json").write_text(json.dumps(evidence))
        asked = to_document(demo_deployment())
        for part, fields in changes.items():
            asked[part] |= fields
        asked |= whole
        (tmp_path / "deployments.json").write_text(json.dumps([asked, *others]))
        (tmp_path / "play.yml").write_text(PLAY)
        done = run_playbook("-i", "gpu-001,", "play.yml", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((tmp_path / "result.json").read_text())

    return decide


def test_a_sound_host_is_planned_from_sysfs_alone_and_saved(decide, tmp_path):
    result = decide()
    assert [replica["memory_nodes"] for replica in result["plan"]["replicas"]] == [[0], [1]]
    assert json.loads((tmp_path / "made/plan.json").read_text()) == result["plan"]
    assert (tmp_path / "made/files/etc/systemd/system/apiary-qwen3-235b-1.service").is_file()


def test_an_open_layout_is_chosen_and_the_summary_says_so(decide, tmp_path):
    result = decide("missing=3", whole={"layout": "auto", "profile": "throughput"})
    assert [len(replica["gpus"]) for replica in result["plan"]["replicas"]] == [4, 2]
    assert result["plan"]["deployment"]["layout"] == "auto"
    assert result["plan"]["layouts"]["considered"][0]["verdict"] == "chosen"
    assert any("preferred for throughput" in line for line in result["summary"])
    unit = (tmp_path / "made/files/etc/systemd/system/apiary-qwen3-235b-1.service").read_text()
    assert "Description=vLLM replica 1 of qwen3-235b, TP2 on" in unit


def test_check_mode_decides_and_writes_nothing(decide, tmp_path):
    assert decide(options=["--check"])["plan"]["replicas"]
    assert not (tmp_path / "made").exists()


def test_files_of_an_earlier_plan_go(decide, tmp_path):
    decide()
    decide(layout={"replicas": 1})
    units = {path.name for path in (tmp_path / "made/files/etc/systemd/system").iterdir()}
    assert "apiary-qwen3-235b-0.service" in units
    assert "apiary-qwen3-235b-1.service" not in units


def test_several_deployments_of_a_host_have_a_plan_each(decide, tmp_path):
    result = decide(others=SMALL, whole={"layout": {"tensor_parallel_size": 4}})
    assert [plan["deployment"]["name"] for plan in result["plans"]] == ["qwen3-235b", "small"]
    assert result["plan"] == result["plans"][0]
    used = [key for plan in result["plans"] for one in plan["replicas"] for key in one["gpus"]]
    assert len(set(used)) == len(used) == 8
    for name, plan in zip(("qwen3-235b", "small"), result["plans"], strict=True):
        assert json.loads((tmp_path / f"made/{name}/plan.json").read_text()) == plan
    assert json.loads((tmp_path / "made/plan.json").read_text()) == result["plans"][0]
    units = {path.name for path in (tmp_path / "made/files/etc/systemd/system").iterdir()}
    assert {"apiary-qwen3-235b-0.service", "apiary-small-1.service"} <= units
    decide(whole={"layout": {"tensor_parallel_size": 4}})
    assert not (tmp_path / "made/small/plan.json").exists()


def test_what_a_host_runs_beside_is_left_its_gpus_and_told(decide, tmp_path):
    before = decide(whole={"layout": {"tensor_parallel_size": 4}})["plan"]
    (tmp_path / "facts.json").write_text(json.dumps({"present": [before, {"schema": "older"}]}))
    renamed = {"name": "other", "base_port": 8100}
    one = {"layout": {"tensor_parallel_size": 4}, **renamed}
    result = decide(whole=one, options=("-e", "@facts.json"))
    assert not set(result["plan"]["replicas"][0]["gpus"]) & set(before["replicas"][0]["gpus"])
    assert [plan["deployment"]["name"] for plan in result["others"]] == ["qwen3-235b"]
    assert {item["code"] for item in result["findings"]} == {
        "PLAN-OTHER-DEPLOYMENT",
        "PLAN-OTHER-UNREADABLE",
    }
    assert any("PLAN-OTHER-DEPLOYMENT" in line for line in result["summary"])
    two = {"layout": {"tensor_parallel_size": 4, "replicas": 2}, **renamed}
    crowded = decide(whole=two, options=("-e", "@facts.json"))
    codes = [item["code"] for item in crowded["findings"]]
    assert codes == ["PLACE-TOO-FEW-GPUS", "PLAN-OTHER-DEPLOYMENT", "PLAN-OTHER-UNREADABLE"]
    removing = decide(whole=two, options=("-e", "@facts.json", "-e", "remove=true"))
    assert len(removing["plan"]["replicas"]) == 2


def test_a_relative_config_is_found_from_where_the_run_starts(decide, tmp_path):
    (tmp_path / "config.json").write_text("{")
    result = decide(model={"config": "config.json"})
    assert [finding["code"] for finding in result["findings"]] == ["MODEL-NOT-JSON"]


@pytest.mark.parametrize(
    ("faults", "changes", "code"),
    [
        pytest.param(["nodriver"], {}, "TOPO-NO-GPUS", id="no-gpus"),
        pytest.param(
            ["missing=3"],
            {"layout": {"tensor_parallel_size": 8, "replicas": 1}},
            "PLACE-TOO-FEW-GPUS",
            id="seven-for-tp8",
        ),
        pytest.param(
            [], {"layout": {"tensor_parallel_size": 3}}, "ENGINE-TP-HEADS", id="tp-divides-no-heads"
        ),
        pytest.param([], {"model": {"config": "none.json"}}, "FILE-UNREADABLE", id="no-config"),
        pytest.param([], {"layout": {"replica": 2}}, "DOC-UNKNOWN", id="unknown-field"),
    ],
)
def test_bad_input_is_one_finding_and_nothing_written(decide, tmp_path, faults, changes, code):
    result = decide(*faults, **changes)
    errors = [item["code"] for item in result["findings"] if item["severity"] == "error"]
    assert errors == [code]
    # ansible-core would append every cause of an exception to its message.
    assert result["msg"].count("error: ") == 1
    assert result["msg"].count("remedy: ") == len(result["findings"])
    assert not (tmp_path / "made").exists()


def test_a_host_too_small_says_which_gpu_is_missing(decide):
    layout = {"tensor_parallel_size": 8, "replicas": 1}
    codes = [item["code"] for item in decide("missing=3", layout=layout)["findings"]]
    assert codes == ["PLACE-TOO-FEW-GPUS", "TOPO-GPU-MISSING"]


def test_kept_replicas_stay_where_they_are_after_a_loss(decide, tmp_path):
    layout = {"tensor_parallel_size": 2, "replicas": 2, "expert_parallel": True}
    limits = {"max_model_len": 8192}

    def planned(*faults, options=()):
        found = decide(*faults, options=options, layout=layout, limits=limits)
        assert "plan" in found, found
        return found["plan"]

    def sets(plan):
        return [replica["gpus"] for replica in plan["replicas"]]

    running = planned()
    (tmp_path / "running.json").write_text(json.dumps({"running": running}))
    kept = planned("missing=0", options=("-e", "@running.json"))
    assert sets(kept)[1] == sets(running)[1]
    assert sets(kept)[0] != sets(running)[0]
    assert "PLACE-MOVED" in {finding["code"] for finding in kept["findings"]}
    assert sets(planned("missing=0")) != sets(kept)
