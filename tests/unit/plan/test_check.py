# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import check_plan

from support.demo import demo_plan


def edited(**changes):
    """The demo's plan with its first replica edited."""
    plan = demo_plan()
    first = dataclasses.replace(plan.replicas[0], **changes)
    return dataclasses.replace(plan, replicas=(first, *plan.replicas[1:]))


def test_a_plan_as_it_was_made_passes():
    check_plan(demo_plan(), "plan.json")


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (edited(unit="../../../escaped.service"), "replicas[0].unit"),
        (edited(cpus="0\nUser=root"), "replicas[0].cpus"),
        (edited(cpus="all"), "replicas[0].cpus"),
        (edited(gpus=("0000:05:00.0 rw\nDeviceAllow=/dev/sda",) * 4), "replicas[0].gpus"),
        (edited(memory_nodes=(-1,)), "replicas[0].memory_nodes"),
        (edited(env={"A\nB": "1"}), "replicas[0].env"),
        (edited(argv=("vllm",)), "replicas[0].argv"),
        (edited(gpus=("0000:05:00.0",)), "layout"),
        (dataclasses.replace(demo_plan(), replicas=()), "replicas"),
        (dataclasses.replace(demo_plan(), target="multi-user.target"), "target"),
    ],
)
def test_an_edited_plan_is_refused(plan, field):
    with pytest.raises(ApiaryError) as caught:
        check_plan(plan, "plan.json")
    (finding,) = caught.value.findings
    assert finding.code == "PLAN-INVALID"
    assert f"field {field}: " in finding.message


def test_a_plan_for_a_deployment_that_could_not_be_is_refused():
    deployment = dataclasses.replace(demo_plan().deployment, user="root\nGroup=wheel")
    with pytest.raises(ApiaryError, match="DEPLOY-VALUE"):
        check_plan(dataclasses.replace(demo_plan(), deployment=deployment), "plan.json")
