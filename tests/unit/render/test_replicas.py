# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role replicas brings a host to."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.resources import (
    name_of,
    with_overrides,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
    absent_deployment,
    decide,
    decide_absent,
    opened,
    render_systemd,
)

from support.demo import demo_plan
from support.host.containers import container_plan

OPTIONS = {
    "replicas_home": "/var/lib/apiary",
    "replicas_remove_stale": True,
    "replicas_remove_caches": False,
    "replicas_secrets": {},
    "replicas_deployment": "",
}


def evidence(version):
    output = CommandOutput(("podman", "--version"), 0 if version else None, version, "", 0.0)
    return Evidence("gpu-001", "2026-07-22T10:15:00Z", "test", {"podman_version": output})


def codes(decided):
    return [finding.code for finding in decided.findings]


def test_a_plan_is_a_user_its_replicas_and_a_release():
    plan = demo_plan()
    decided = decide(plan, OPTIONS, None)
    name = plan.deployment.name
    assert [name_of(resource) for resource in decided.resources] == [
        f"user {plan.deployment.account}",
        f"replicas {name}",
        f"release {name}",
    ]
    _user, replicas, release = decided.resources
    paths = [item.path for item in render_systemd(plan)]
    assert [item["path"] for item in replicas["files"]] == paths
    assert [item["path"] for item in release["files"]] == paths
    assert not any("content" in item for item in release["files"])
    assert (codes(decided), decided.unsure) == ([], False)


def test_converge_takes_what_was_decided():
    """An extra resource makes the whole list be checked."""
    extra = {"kind": "file", "path": "/etc/x", "content": ""}
    options = {
        **OPTIONS,
        "replicas_extra_resources": [extra],
        "replicas_omit": ["user apiary-qwen3-235b"],
    }
    decided = decide(demo_plan(), options, None)
    result = with_overrides("replicas", decided.resources, options)
    assert result[-1] == {**extra, "role": "replicas"}


def test_rendered_files_are_taken_as_they_are():
    files = render_systemd(demo_plan())[:1]
    decided = decide(demo_plan(), OPTIONS, None, files=files)
    assert [item["path"] for item in decided.resources[1]["files"]] == [files[0].path]


def test_stale_units_stay_where_that_is_wanted():
    options = {**OPTIONS, "replicas_remove_stale": False}
    assert decide(demo_plan(), options, None).resources[1]["stale_pattern"] == "(?!)"


@pytest.mark.parametrize(
    ("version", "later", "found", "unsure"),
    [
        ("podman version 5.4.2", False, [], False),
        ("podman version 4.3.1", False, ["CONTAINER-RUNTIME-OLD"], False),
        ("podman version 4.3.1", True, ["CONTAINER-RUNTIME-OLD"], False),
        ("", False, ["CONTAINER-ENGINE-ABSENT"], True),
        # Another role may bring it first.
        ("", True, [], True),
    ],
)
def test_the_container_engine_s_refusals_are_findings(version, later, found, unsure):
    plan = container_plan("quadlet")
    decided = decide(plan, OPTIONS, evidence(version), engine_later=later)
    assert (codes(decided), decided.unsure) == (found, unsure)


def test_a_secret_that_the_deployment_does_not_name_is_refused_and_not_shown():
    options = {**OPTIONS, "replicas_secrets": {"OTHER": "planted-value"}}
    decided = decide(demo_plan(), options, None)
    assert codes(decided) == ["REPLICA-SECRET-UNNAMED"]
    assert "planted" not in str(decided)


def user_of(plan):
    return decide(plan, OPTIONS, None).resources[0]


def test_each_deployment_has_a_user_of_its_own_unless_the_operator_names_one():
    plan = demo_plan()
    other = dataclasses.replace(plan.deployment, name="other")
    named = dataclasses.replace(plan.deployment, user="vllm")
    users = [
        user_of(dataclasses.replace(plan, deployment=each))
        for each in (plan.deployment, other, named)
    ]
    assert [user["name"] for user in users] == ["apiary-qwen3-235b", "apiary-other", "vllm"]
    # An account of the operator's has nothing of ours, and stays when the deployment goes.
    assert [user.get("comment") for user in users] == [
        "Apiary engines of qwen3-235b",
        "Apiary engines of other",
        None,
    ]
    for each, user in zip((plan.deployment, other, named), users, strict=True):
        text = "".join(
            item.content for item in render_systemd(dataclasses.replace(plan, deployment=each))
        )
        assert f"\nUser={user['name']}\n" in text


def test_absence_names_its_deployment():
    resource, user, *ports = decide_absent("x", OPTIONS).resources
    assert (resource["deployment"], resource["state"]) == ("x", "absent")
    assert user == {
        "kind": "user",
        "state": "absent",
        "name": "apiary-x",
        "comment": "Apiary engines of x",
    }
    assert ports == list(opened("x"))
    plan = {"deployment": {"name": "x"}}
    assert absent_deployment(OPTIONS, plan, "gpu-001") == "x"
    named = {**OPTIONS, "replicas_deployment": "y"}
    assert absent_deployment(named, plan, "gpu-001") == "y"
    with pytest.raises(ApiaryError, match="FLEET-VARIABLE"):
        absent_deployment(OPTIONS, None, "gpu-001")
