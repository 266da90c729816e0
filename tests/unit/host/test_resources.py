# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a role decides is surveyed, shown and converged; operators add to it and leave out of it."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import types
from ansible_collections.apiary.instinct.plugins.modules import converge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import (
    concern_of,
    deployment_of,
    evaluate,
    resources_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Change
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.concerns import CONCERNS
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.resources import with_overrides
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import read_role
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import ConcernPlan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import ReplicasPlan

from support.modules import run_module

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


@pytest.mark.parametrize("role", [*CONCERNS, "replicas"])
def test_each_role_takes_more_resources_and_leaves_some_out(role):
    if role == "reboot":  # its settings are what the play's other roles decided
        return
    assert {f"{role}_extra_resources", f"{role}_omit"} <= set(read_role(role).options)


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
        ({"kind": "wish"}, "is none of the kinds"),
        ({"kind": "file", "colour": "red"}, "colour"),
        (FILE, "file /etc/a: is listed twice"),
    ],
)
def test_an_extra_resource_that_cannot_be_is_refused_on_the_controller(extra, message):
    with pytest.raises(ApiaryError) as refusal:
        with_overrides("rocm", [FILE], {"rocm_extra_resources": [extra]})
    assert [finding.code for finding in refusal.value.findings] == ["HOST-RESOURCES"]
    assert message in str(refusal.value)
