# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a role decides is surveyed, shown and converged; operators add to it and leave out of it."""

import importlib

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import types
from ansible_collections.apiary.instinct.plugins.modules import converge
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet import router_role
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import (
    concern_of,
    deployment_of,
    evaluate,
    resources_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Change
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import telemetry, weights
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.resources import with_overrides
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import (
    ROLES as DIRECTORY,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import read_role
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import (
    CONCERNS,
    ConcernPlan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render import replicas
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import ReplicasPlan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry import monitoring_role

from support.demo import demo_plan
from support.modules import run_module
from support.roles import decide_role

HOST = "ansible_collections.apiary.instinct.plugins.plugin_utils.host"

FILE = {"kind": "file", "path": "/etc/a", "content": "a\n"}
UNIT = {"kind": "service", "name": "a.service", "enabled": True}


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    return lambda concern, check: run_module(
        converge, capsys, check, resources=resources_of([concern])
    )


@pytest.mark.parametrize("role", [*CONCERNS, "replicas"])
def test_a_resource_that_a_role_decides_is_surveyed_shown_and_converged(role, run, tmp_path):
    path = tmp_path / "added"
    added = ({"kind": "file", "path": str(path), "content": "x\n"},)
    options = read_role(role).defaults
    concern = (
        deployment_of("demo", ReplicasPlan(added), options, "sha")
        if role == "replicas"
        else concern_of(role, ConcernPlan(resources=added), options, "sha")
    )
    (survey,) = evaluate([concern], run(concern, True)["resources"], "gpu-001")
    assert not survey.settled
    assert survey.changes == (Change(str(path), "", "x\n"),)
    assert not path.exists()
    assert run(concern, False)["diff"][0]["after"] == "x\n"
    assert path.read_text() == "x\n"
    (survey,) = evaluate([concern], run(concern, True)["resources"], "gpu-001")
    assert survey.settled


# What decides each role, and what the role is to be told.
DECIDED = {
    **{name: (importlib.import_module(f"{HOST}.{name}"), {}) for name in CONCERNS},
    "router": (router_role, {}),
    "telemetry": (telemetry, {}),
    "monitoring": (monitoring_role, {}),
    "weights": (weights, {}),
    "replicas": (replicas, {"plan": to_document(demo_plan())}),
}
# Acceptance changes nothing.
ROLES = sorted({path.name for path in DIRECTORY.iterdir()} - {"acceptance"})


@pytest.mark.parametrize("role", ROLES)
def test_a_role_converges_whatever_is_added_to_what_it_decides(role, tmp_path, monkeypatch, capsys):
    path = tmp_path / "added"
    added = {"kind": "file", "path": str(path), "content": "x\n"}
    module, arguments = DECIDED[role]
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    plan = ReplicasPlan if role == "replicas" else ConcernPlan
    monkeypatch.setattr(module, "decide", lambda *_given, **_more: plan(resources=(added,)))

    def run(check, **variables):
        evidence = {
            "schema": "apiary.evidence/v1",
            "host": "gpu-001",
            "collected_at": "2026-11-21T10:39:00Z",
            "collector": "2",
            "files": {"/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n'},
        }
        variables = {"apiary_artifacts": str(tmp_path / "artifacts"), **variables}
        decided = decide_role(role, variables, check, evidence=evidence, **arguments)
        return run_module(converge, capsys, check, resources=decided["resources"])

    if role != "router":  # in check mode, a fresh one has nothing to route to yet
        assert run(True)["diff"][0]["after"] == "x\n"
        assert not path.exists()
    assert run(False)["changed"]
    assert path.read_text() == "x\n"
    assert not run(False)["changed"]
    more = {"kind": "file", "path": str(tmp_path / "more"), "content": "y\n"}
    overrides = {f"{role}_extra_resources": [more], f"{role}_omit": [f"file {path}"]}
    path.unlink()
    result = run(False, **overrides)
    if role == "reboot":  # it records what it decides by, and takes nothing else
        assert path.exists()
        assert "reboot_omit" not in read_role(role).options
        return
    assert not path.exists()
    assert [each["resource"] for each in result["resources"]] == [f"file {tmp_path / 'more'}"]


def test_extra_resources_come_last_and_omitted_ones_are_left_alone():
    options = {"rocm_extra_resources": [UNIT], "rocm_omit": ["file /etc/b"]}
    other = {**FILE, "path": "/etc/b"}
    assert with_overrides("rocm", [FILE, other], options) == [
        {**FILE, "role": "rocm"},
        {**UNIT, "role": "rocm"},
    ]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"kind": "wish"}, "is no kind of resource"),
        ({"kind": "file", "colour": "red"}, "colour"),
        (FILE, "file /etc/a: is listed twice"),
    ],
)
def test_an_extra_resource_that_cannot_be_is_refused_on_the_controller(extra, message):
    with pytest.raises(ApiaryError) as refusal:
        with_overrides("rocm", [FILE], {"rocm_extra_resources": [extra]})
    assert [finding.code for finding in refusal.value.findings] == ["HOST-RESOURCES"]
    assert message in str(refusal.value)
