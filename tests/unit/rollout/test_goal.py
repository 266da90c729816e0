# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is to serve after a change: a new plan, or a release."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
    decide,
    render_systemd,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.steps import (
    chosen_plan,
    goal_of_plan,
    goal_of_release,
)

from support.demo import demo_plan

OPTIONS = {"replicas_home": "/var/lib/apiary", "replicas_remove_stale": True}


def other_plan():
    plan = demo_plan()
    return dataclasses.replace(plan, deployment=dataclasses.replace(plan.deployment, name="y"))


def test_a_plan_is_prepared_replaced_and_retained():
    plan = demo_plan()
    resources = decide(plan, OPTIONS, None).resources
    extra = {"kind": "file", "path": "/etc/x", "content": ""}
    goal = goal_of_plan(plan, [*resources, extra], "ann")
    assert [one["kind"] for one in goal.prepare] == ["user", "file"]
    assert goal.replicas == resources[1]
    assert goal.retain == [{**resources[2], "by": "ann"}]
    assert goal.plan_text in [item.content for item in render_systemd(plan)]
    assert goal.release == ""


def test_a_release_is_served_as_it_was_and_made_current():
    plan = demo_plan()
    units = {"services": ["a"], "target": "t", "stale_pattern": "p"}
    release = {
        "id": "20260722T101500Z-0f3a9c21",
        "deployment": plan.deployment.name,
        "files": to_document(render_systemd(plan)),
        "units": units,
    }
    goal = goal_of_release(release, plan.deployment.name, plan.host)
    assert goal.plan == to_document(plan)
    assert goal.replicas["files"] == release["files"]
    assert units.items() <= goal.replicas.items()
    # Secrets are in no release: they stay as they are.
    assert "secrets" not in goal.replicas
    (retain,) = goal.retain
    assert (retain["kind"], retain["release"], goal.release) == ("release", *[release["id"]] * 2)


def test_one_deployment_is_meant():
    plan, other = demo_plan(), other_plan()
    assert chosen_plan([plan], None, "a") == plan
    assert chosen_plan([plan, other], "y", "a") == other
    for plans, name in (([plan, other], None), ([plan], "z")):
        with pytest.raises(ApiaryError, match="ROLLOUT-WHICH"):
            chosen_plan(plans, name, "a")
