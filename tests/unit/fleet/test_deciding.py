# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing that a role does escapes the survey: both converge the same resources."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.applying import (
    ROLES_WITH_ACTS,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.deciding import due, scopes_for
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import (
    deployment_of,
    resources_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    ConcernSurvey,
    Survey,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import CONCERNS
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import decide

from support.demo import demo_plan

ROOT = Path(__file__).parents[3]
# What gathers, decides or reports.
QUIET = {
    "apiary.instinct.evidence_info",
    "apiary.instinct.decide",
    "ansible.builtin.debug",
    "apiary.instinct.refuse",
    "ansible.builtin.include_tasks",
    "ansible.builtin.set_fact",
}
# What is an act and no state, and where a survey has it from.
ACTS = {
    "weight_cache": {"apiary.instinct.weights_publish": "unsure where models are staged"},
    # It converges twice: the package manager's lists first, where they are needed to decide.
    "container_runtime": {},
    "device_plugin": {"kubernetes.core.k8s": "unsure where device_plugin_apply is set"},
    "reboot": {"ansible.builtin.reboot": "plan.needed"},
}
OPTIONS = {
    "replicas_remove_stale": True,
    "replicas_home": "/var/lib/apiary",
    "replicas_deployment": "",
    "replicas_remove_caches": False,
}


def modules(tasks):
    """Yield the modules of tasks, those in blocks, too."""
    for task in tasks:
        for key, value in task.items():
            if key in ("block", "rescue", "always"):
                yield from modules(value)
            elif key.count(".") == 2:
                yield key


@pytest.mark.parametrize("role", [*CONCERNS, "replicas"])
def test_a_role_converges_and_does_nothing_else_that_a_survey_misses(role):
    files = sorted((ROOT / "roles" / role / "tasks").glob("*.yml"))
    found = {one for path in files for one in modules(yaml.safe_load(path.read_text()))}
    assert found - QUIET == {"apiary.instinct.converge", *ACTS.get(role, {})}


def test_a_role_with_acts_is_run_itself_and_others_are_applied():
    """The weights' role where models are staged: see Pending.acts."""
    assert set(ACTS) == {*ROLES_WITH_ACTS, "weight_cache", "reboot"}


def test_a_deployment_is_what_its_role_converges():
    decided = decide(demo_plan(), OPTIONS, None, restart=False)
    concern = deployment_of("qwen3-235b", decided, OPTIONS, "sha")
    assert (concern.name, concern.asked) == ("replicas:qwen3-235b", "sha")
    assert resources_of([concern]) == [
        {**to_document(resource), "role": "replicas:qwen3-235b"} for resource in decided.resources
    ]


@pytest.mark.parametrize(
    ("unsettled", "applied", "expected"),
    [
        ((), True, []),
        (("rocm",), True, ["rocm", "host_tuning"]),
        (("rocm",), False, ["rocm"]),
        (("host_tuning", "reboot"), True, ["host_tuning", "reboot"]),
        (("weight_cache",), True, ["weight_cache"]),
        (("device_plugin",), True, ["device_plugin", "replicas"]),
        (("replicas:x",), True, ["replicas"]),
    ],
)
def test_what_comes_after_a_change_is_not_skipped_without_another_look(
    unsettled, applied, expected
):
    asked = ["rocm", "host_tuning", "weight_cache", "device_plugin", "replicas"]
    names = [*asked[:-1], "reboot", "replicas:x", "replicas:y"]
    told = tuple(ConcernSurvey(one, one not in unsettled) for one in names)
    survey = Survey("gpu-001", "2026-11-22T09:00:00Z", concerns=told)
    assert due(survey, asked, applied) == expected


def test_scopes_are_those_of_the_concerns():
    assert scopes_for(["weight_cache"], False, False) == ["weights"]
    assert scopes_for(["host_tuning"], False, False) == ["gpu", "reboot", "tuning"]
    assert scopes_for(["replicas"], False, True) == ["container", "gpu", "plans"]
    assert scopes_for([], False, False) == ["gpu", "plans"]
    assert {"rocm", "gpu", "plans"} <= set(scopes_for(["replicas"], True, False))
