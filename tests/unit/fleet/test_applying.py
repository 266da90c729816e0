# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a survey leaves to the rest of its run, and what holds once it is applied."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.applying import (
    Pending,
    applied,
    concerns_of,
    pending_of,
    refusals,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.deciding import Decided
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import Concern
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    ConcernSurvey,
    Served,
    Survey,
)

ROOT = Path(__file__).parents[3]
WARNING = Finding("ROUTER-HOST-KEPT", "gpu-001", "old", host="gpu-001")
ERROR = Finding("FLEET-VARIABLE", "gpu-001", "is wrong", name="x")
FILE = {"kind": "file", "path": "/etc/x", "content": "x"}
SERVED = Served("small", "m", "vllm 1", "DP2", 2, 4, "digest")
TIME = "2026-11-23T09:00:00Z"


def decided(*concerns):
    return Decided("gpu-001", TIME, concerns)


def left(*concerns, before=None, whole=True, reports=(), **survey):
    found = tuple(
        ConcernSurvey(item.name, False, (Change("x"),), ("new driver",), item.findings)
        for item in concerns
    )
    document = Survey("gpu-001", TIME, concerns=found, **survey)
    return pending_of(document, decided(*concerns), reports, whole, before)


def test_what_is_applied_is_settled_and_its_warnings_stay():
    warned = Concern("rocm", resources=(FILE,), findings=(WARNING,))
    after = applied(left(warned, Concern("host_tuning")), ["rocm"]).survey
    rocm, tuning = after.concerns
    assert rocm == ConcernSurvey("rocm", True, findings=rocm.findings)
    assert [item.code for item in rocm.findings] == ["ROUTER-HOST-KEPT"]
    assert not tuning.settled


def test_what_is_served_runs_afterwards_beside_what_ran():
    other = replace(SERVED, deployment="other", up=1)
    pending = left(
        Concern("replicas:small"),
        Concern("replicas:gone"),
        wanted=(SERVED,),
        running=(other, replace(SERVED, deployment="gone", up=2)),
    )
    assert applied(pending, ["weight_cache"]).survey.running == pending.survey.running
    assert applied(pending, ["replicas"]).survey.running == (other, replace(SERVED, up=2))


def test_roles_are_applied_as_a_host_is_made_right_and_those_without_resources_are_none():
    """Replicas read what weight_cache mounts and run what engine installs."""
    pending = left(
        Concern("weight_cache", resources=(FILE,)),
        Concern("engine", resources=(FILE,)),
        Concern("replicas:b", resources=(FILE,)),
        Concern("replicas:a", resources=(FILE,)),
        Concern("reboot"),
    )
    names = ["weight_cache", "engine", "replicas:b", "replicas:a"]
    for roles in permutations(["replicas", "weight_cache", "engine", "reboot"]):
        assert concerns_of(pending, roles) == names


def test_the_module_takes_every_role_that_playbooks_apply():
    page = yaml.safe_load((ROOT / "plugins/modules/apply.yml").read_text())
    choices = page["DOCUMENTATION"]["options"]["roles"]["choices"]
    for name in ("provision", "serve"):
        [line] = re.findall(
            r"(?m)^ +roles: (.*)$", (ROOT / f"playbooks/tasks/{name}.yml").read_text()
        )
        wanted = re.findall(r"\[('.*?')\]", line)[0].replace("'", "").split(", ")
        assert set(wanted) <= set(choices)


def test_what_the_host_refused_may_be_mended_by_a_role_before():
    seen = left(Concern("replicas:a", resources=(FILE,)))
    on_host = replace(seen.survey.concerns[0], findings=(ERROR,))
    seen = replace(seen, survey=replace(seen.survey, concerns=(on_host,)))
    assert refusals(seen, ["replicas"], checking=False) == ()
    assert refusals(seen, ["replicas"], checking=True) == (ERROR,)


def test_what_cannot_be_decided_is_refused_also_what_no_role_brought():
    for concern in (
        Concern("replicas:a", findings=(ERROR, WARNING)),
        Concern("replicas:a", missing=(ERROR, WARNING), unsure=True),
    ):
        assert refusals(left(concern), ["replicas"], checking=False) == (ERROR,)
        assert refusals(left(concern), ["rocm"], checking=False) == ()


def test_roles_that_do_more_than_converge_are_named():
    pending = left(
        Concern("rocm"),
        Concern("weight_cache", unsure=True),
        Concern("container_runtime"),
        Concern("device_plugin"),
        Concern("replicas:a", unsure=True),
    )
    assert pending.acts == ("weight_cache", "container_runtime", "device_plugin")


def test_an_inspection_of_some_roles_keeps_what_was_inspected_before_it():
    before = applied(left(Concern("rocm"), Concern("replicas:a")), ["rocm"])
    after = left(Concern("replicas:a"), before=before, whole=False)
    assert [item.concern for item in after.survey.concerns] == ["rocm", "replicas:a"]
    assert [item.settled for item in after.survey.concerns] == [True, False]
    assert after.whole
    assert not left(Concern("replicas:a"), whole=False).whole


def test_it_is_the_same_when_it_is_read_back():
    report = {"role": "rocm", "resource": "file /etc/x", "changed": True, "diff": [{"after": "x"}]}
    pending = left(Concern("rocm", resources=(FILE,), findings=(WARNING,)), reports=(report,))
    assert pending.reports == {"rocm": (report,)}
    again = from_document(Pending, to_document(pending), "gpu-001")
    assert to_document(again) == to_document(pending)


def test_a_task_of_several_roles_has_none_of_their_tags():
    """`--skip-tags` of one would skip all; site.yml leaves out roles by what is inspected."""
    tasks = [
        task
        for path in sorted((ROOT / "playbooks/tasks").glob("*.yml"))
        for task in yaml.safe_load(path.read_text())
        if "apiary.instinct.apply" in task
    ]
    assert len(tasks) == 2
    assert [task["tags"] for task in tasks] == [["always"], ["always"]]
