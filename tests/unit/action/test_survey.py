# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The survey action as a playbook meets it; this machine stands for the host."""

import json
from pathlib import Path

import pytest
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
    - apiary.instinct.survey:
        concerns: "{{ concerns | default(omit) }}"
        evidence: "{{ playbook_dir }}/given.json"
        dest: "{{ playbook_dir }}/made"
        tolerant: "{{ tolerant | default(true) }}"
      register: seen
      ignore_errors: true
    - save:
        content: "{{ seen | to_json }}"
        dest: "{{ playbook_dir }}/result.json"
"""


@pytest.fixture
def play(tmp_path):
    """Run a play on hosts with these variables, which this machine stands for."""

    def play(text, hosts, *options):
        (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        (tmp_path / "play.yml").write_text(text)
        done = run_playbook("-i", "inventory.json", "play.yml", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    return play


@pytest.fixture
def survey(tmp_path, play):
    """Survey a simulated host with these variables; return the result and the document."""

    def survey(*options, **variables):
        evidence = simulated_evidence()
        evidence["files"]["/etc/os-release"] = "ID=debian\nVERSION_ID=12\n"
        (tmp_path / "given.json").write_text(json.dumps(evidence))
        play(PLAY, {"gpu-001": {"ansible_connection": "local", **variables}}, *options)
        document = tmp_path / "made/survey.json"
        told = json.loads(document.read_text()) if document.is_file() else None
        return json.loads((tmp_path / "result.json").read_text()), told

    return survey


def test_a_host_is_surveyed_by_the_variables_of_its_roles(survey, tmp_path):
    asked = {**to_document(demo_deployment()), "secrets": ["API_KEY"]}
    told, document = survey(
        apiary_concerns=["weight_cache", "replicas"],
        apiary_deployment=asked,
        replicas_secrets={"API_KEY": "hunter-two-is-long"},
    )
    assert document["schema"] == "apiary.survey/v1"
    assert told["due"] == ["weight_cache", "replicas"]
    assert told["settled"] == {"weight_cache": False, "replicas:qwen3-235b": False}
    (served,) = document["wanted"]
    assert (served["layout"], served["replicas"]) == ("DP2/TP4/EP4", 2)
    # Of a host that has none of it, all would come, and no secret is told.
    (_cache, replicas) = document["concerns"]
    subjects = [one["subject"] for one in replicas["changes"]]
    assert "/etc/apiary/qwen3-235b/credentials/API_KEY" in subjects
    assert len(replicas["asked"]) == 64
    assert "hunter" not in json.dumps([told, document])
    assert set(told) >= {"due", "settled", "evidence", "summary"}
    assert len(json.dumps(told)) < 4000
    # A plan that is not served yet is not what routers are to follow.
    assert not (tmp_path / "made/plan.json").exists()


def test_wrong_variables_are_in_the_survey_by_concern(survey):
    _told, document = survey(
        apiary_concerns=["weight_cache", "replicas"], weight_cache_state="maybe"
    )
    found = {
        one["concern"]: [finding["code"] for finding in one["findings"]]
        for one in document["concerns"]
    }
    assert found == {"weight_cache": ["FLEET-VARIABLE"], "replicas:": ["FLEET-NO-DEPLOYMENT"]}
    assert not any(one["settled"] for one in document["concerns"])


def test_wrong_variables_end_a_run_that_is_not_tolerant(survey):
    told, document = survey(
        apiary_concerns=["weight_cache"], weight_cache_state="maybe", tolerant=False
    )
    assert told["failed"]
    assert told["findings"][0]["subject"] == "gpu-001: weight_cache_state"
    assert document is None


def test_check_mode_writes_no_survey(survey):
    told, document = survey("--check", apiary_concerns=["weight_cache", "device_plugin"])
    assert document is None
    # Evidence that is kept for as long as the run is no part of the host's directory.
    assert told["settled"] == {"weight_cache": False, "device_plugin": True}


def test_replicas_that_are_to_go_are_settled_where_none_are(survey, tmp_path):
    """`-e replicas_state=absent`: what is asked is that nothing of it is there."""
    (told, document) = survey(
        apiary_concerns=["replicas"],
        apiary_deployment=to_document(demo_deployment()),
        replicas_state="absent",
    )
    assert told["settled"] == {"replicas:qwen3-235b": True}
    assert document["wanted"] == []
    assert not (tmp_path / "made/plan.json").exists()


def test_a_plan_that_nobody_compared_with_the_host_is_not_kept(survey, tmp_path):
    asked = {"apiary_deployment": to_document(demo_deployment()), "concerns": ["device_plugin"]}
    told, _document = survey(**asked, apiary_concerns=["device_plugin", "replicas"])
    assert told["settled"] == {"device_plugin": True}
    assert not (tmp_path / "made/plan.json").exists()
    survey(**asked, apiary_concerns=["device_plugin"])
    assert (tmp_path / "made/plan.json").exists()


@pytest.mark.parametrize(
    ("wrong", "subject"),
    [
        ({"apiary_concerns": ["rocmm"]}, "gpu-001: apiary_concerns"),
        ({"apiary_concerns": "rocm"}, "gpu-001: apiary_concerns"),
        ({"apiary_deployment": "qwen"}, "gpu-001: apiary_deployment"),
        ({"apiary_concerns": "{{ nowhere }}"}, "gpu-001"),
    ],
)
def test_a_variable_of_no_use_is_in_the_survey(survey, wrong, subject):
    told, document = survey(**{"apiary_concerns": ["replicas"], **wrong})
    assert not told.get("failed")
    assert [one["subject"] for one in document["findings"]] == [subject]


def test_an_engine_that_is_none_is_the_deployment_s_mistake(survey):
    asked = {**to_document(demo_deployment()), "engine": None}
    _told, document = survey(apiary_concerns=["replicas"], apiary_deployment=asked)
    (concern,) = document["concerns"]
    assert [one["severity"] for one in concern["findings"]] == ["error"]


def test_a_directory_that_cannot_be_written_is_one_finding(survey, tmp_path):
    (tmp_path / "made").write_text("a file")
    told, document = survey(apiary_concerns=["weight_cache"])
    assert told["failed"]
    assert [one["code"] for one in told["findings"]] == ["FILE-UNWRITABLE"]
    assert document is None


NODES = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - apiary.instinct.survey:
      register: alone
    - ansible.builtin.set_fact:
        __probed:
          evidence: "{{ playbook_dir }}/{{ inventory_hostname }}.json"
    - apiary.instinct.survey:
        evidence: "{{ __probed.evidence }}"
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}"
      register: together
    - save:
        content: "{{ [alone, together] | to_json }}"
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}-result.json"
"""


def test_replicas_that_span_hosts_wait_for_the_evidence_of_all_of_them(play, tmp_path):
    asked = to_document(demo_deployment())
    asked["layout"] = {
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "nodes": 2,
        "expert_parallel": True,
    }
    for name, faults in (("gpu-001", ()), ("gpu-002", ("missing=3",))):
        evidence = simulated_evidence(*faults)
        (tmp_path / f"{name}.json").write_text(json.dumps(evidence))
    told = {"apiary_concerns": ["replicas"], "apiary_deployment": asked, "apiary_interface": "eth0"}
    hosts = {
        name: {"ansible_connection": "local", "apiary_address": address, **told}
        for name, address in (("gpu-001", "10.0.0.1"), ("gpu-002", "10.0.0.2"))
    }
    play(NODES, hosts)
    alone, together = json.loads((tmp_path / "gpu-001-result.json").read_text())
    assert alone["waiting"] is True
    assert together["waiting"] is False
    document = json.loads((tmp_path / "gpu-001/survey.json").read_text())
    # What the other host lacks is told by this one.
    (found,) = [one for one in document["concerns"] if one["concern"].startswith("replicas")]
    assert any("gpu-002" in one["subject"] + one["message"] for one in found["findings"])


APPLY = """
- hosts: all
  connection: local
  gather_facts: false
  vars:
    dest: "{{ playbook_dir }}/made"
  tasks:
    - apiary.instinct.survey:
        dest: "{{ dest }}"
      register: seen
    - apiary.instinct.apply: {roles: "{{ seen.due }}", dest: "{{ dest }}"}
      register: applied
    - ansible.builtin.copy:
        content: "{{ [seen, applied] | to_json }}"
        dest: "{{ playbook_dir }}/result.json"
        mode: "0644"
      check_mode: false
"""


def test_what_a_survey_decided_is_applied_without_another(play, tmp_path):
    path = tmp_path / "written"
    variables = {
        "ansible_connection": "local",
        "apiary_concerns": ["weight_cache"],
        # This machine stands for the host: the role's own resources would be its own.
        "weight_cache_state": "absent",
        "weight_cache_extra_resources": [
            {"kind": "file", "path": str(path), "content": "text\n", "mode": "0600"}
        ],
    }

    def run(*options):
        play(APPLY, {"gpu-apply": variables}, *options)
        return json.loads((tmp_path / "result.json").read_text())

    seen, applied = run("--check")
    assert seen["due"] == ["weight_cache"]
    assert applied["changed"]
    assert applied["resources"] == {"weight_cache": [f"file {path}"]}
    assert "text" in json.dumps(applied["diff"])
    assert not path.exists()

    _seen, applied = run()
    assert (applied["changed"], applied["stale"], applied["reboot"]) == (True, False, [])
    assert path.read_text() == "text\n"
    survey = json.loads((tmp_path / "made/survey.json").read_text())
    assert [item["settled"] for item in survey["concerns"] if item["concern"] != "reboot"] == [True]

    seen, applied = run()
    assert (seen["due"], applied["changed"]) == ([], False)
