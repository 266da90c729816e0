# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts as settled, and how a module's answer becomes changes and findings."""

import dataclasses
import hashlib

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import (
    Concern,
    Step,
    changes_of,
    judge,
    questions,
    refused,
    running,
    told_findings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Change

from support.demo import demo_plan

STEPS = (Step("host_files", {"files": []}), Step("live_settings", {"settings": []}))
TUNING = Concern("host_tuning", "abc", STEPS)


def answer(module="host_files", changed=False, **more):
    told = {"diff": [], "steps": [], "warnings": [], "failure": None, "findings": []}
    return {"concern": "host_tuning", "module": module, "changed": changed, **told, **more}


def survey_of(concern, *answers):
    (one,) = judge([concern], answers, "gpu-001")
    return one


def test_a_concern_without_a_change_is_settled():
    told = survey_of(TUNING, answer(), answer("live_settings"))
    assert told.settled
    assert (told.changes, told.reboot, told.findings, told.asked) == ((), (), (), "abc")


def test_each_changed_file_and_value_is_a_change_with_its_diff():
    diff = {"before_header": "/a", "after_header": "/a", "before": "1\n", "after": "0\n"}
    told = survey_of(TUNING, answer(changed=True, diff=[diff]), answer("live_settings"))
    assert not told.settled
    assert told.changes == (Change("/a", "1\n", "0\n"),)


@pytest.mark.parametrize(
    "more",
    [
        {"changes": (Change("update-grub"),)},
        {"reboot": ("the running kernel was not told iommu=pt",)},
        {
            "findings": (
                Finding.from_fields(
                    code="X-Y",
                    severity="error",
                    subject="gpu-001",
                    message="wrong",
                    remedy="mend it",
                    source=None,
                ),
            )
        },
        {"unsure": True},
    ],
    ids=["a step of the plan", "a reboot", "an error", "nobody can tell"],
)
def test_what_no_look_shows_keeps_a_concern_from_being_settled(more):
    concern = dataclasses.replace(TUNING, **more)
    asked = questions([concern])
    assert not survey_of(concern, *(answer(one["module"]) for one in asked)).settled


def test_a_warning_does_not():
    warning = Finding.from_fields(
        code="X-Y",
        severity="warning",
        subject="gpu-001",
        message="mind this",
        remedy="look",
        source=None,
    )
    told = survey_of(dataclasses.replace(TUNING, findings=(warning,)), answer(), answer())
    assert told.settled
    assert told.findings == (warning,)


def test_a_refused_concern_is_asked_nothing_and_leaves_the_others_their_answers():
    wrong = refused("rocm", "abc", error("ROCM-VERSION", "gpu-001", "no such", "name another"))
    assert [one["concern"] for one in questions([wrong, TUNING])] == ["host_tuning"] * 2
    first, second = judge([wrong, TUNING], [answer(), answer()], "gpu-001")
    assert [one.code for one in first.findings] == ["ROCM-VERSION"]
    assert not first.settled
    assert second.settled


def test_a_look_that_is_refused_is_a_finding():
    failure = "error: HOST-LIVE-SETTING: /proc/x: cannot be read\n  remedy: see dmesg"
    told = survey_of(TUNING, answer(), answer("live_settings", failure=failure))
    assert not told.settled
    (found,) = told.findings
    assert (found.code, found.severity) == ("HOST-LIVE-SETTING", "error")
    assert (found.message, found.remedy) == ("/proc/x: cannot be read", "see dmesg")


def test_a_late_step_says_nothing_where_something_before_it_would_change():
    late = dataclasses.replace(TUNING, steps=(STEPS[0], Step("weights_info", {}, late=True)))
    absent = answer("weights_info", failure="WEIGHTS-ABSENT: nothing there; remedy: mount it")
    changed = answer(changed=True, steps=["mount /srv/models"])
    assert survey_of(late, changed, absent).findings == ()
    assert [one.code for one in survey_of(late, answer(), absent).findings] == ["WEIGHTS-ABSENT"]


def test_steps_in_words_are_changes_and_their_diff_says_nothing_more():
    words = answer("rocm_packages", True, steps=["apt-mark hold x"], diff=[{"after": "hold x\n"}])
    assert list(changes_of(words)) == [Change("apt-mark hold x")]


def test_what_happens_to_units_is_a_change_for_each_line():
    file = {"before_header": "/u", "after_header": "/u", "before": "", "after": "[Unit]\n"}
    told = answer("replica_units", True, diff=[{"prepared": "enable: a b\nstart: a\n"}, file])
    assert list(changes_of(told)) == [
        Change("enable: a b"),
        Change("start: a"),
        Change("/u", "", "[Unit]\n"),
    ]


def test_what_goes_is_named():
    told = answer("replica_absent", True, diff=[{"before": "/etc/apiary/x\n", "after": ""}])
    assert list(changes_of(told)) == [Change("remove /etc/apiary/x")]


def test_a_change_without_words_is_still_one():
    assert list(changes_of(answer("live_settings", True))) == [Change("live_settings")]


def test_every_finding_of_a_message_is_told_by_its_own_code():
    text = "error: A-B: one: 1\n  remedy: do this\nerror: C-D: two\nmore\n  remedy: do that"
    first, second = told_findings(text, "gpu-001", "error")
    assert (first.code, first.message, first.remedy) == ("A-B", "one: 1", "do this")
    assert (second.code, second.message, second.remedy) == ("C-D", "two\nmore", "do that")


def test_a_message_that_is_no_finding_is_one_all_the_same():
    (found,) = told_findings("Traceback: it broke", "gpu-001", "error")
    assert (found.code, found.message) == ("FLEET-CHECK", "Traceback: it broke")


def test_a_running_deployment_counts_what_is_up():
    plan = demo_plan()
    unit = plan.replicas[0].unit
    rows = f"{unit} loaded active running x\n{plan.replicas[1].unit} loaded failed failed x\n"
    said = {"replicas": CommandOutput(("systemctl",), 0, rows, "", 0.1)}
    path = "/etc/apiary/qwen3-235b/plan.json"
    evidence = Evidence("gpu-001", "2026-11-22T09:00:00Z", "2", said, {path: "{}\n"})
    (told,) = running(evidence, {path: plan})
    assert (told.deployment, told.layout, told.up) == ("qwen3-235b", "DP2/TP4/EP4", 1)
    assert told.plan == hashlib.sha256(b"{}\n").hexdigest()
    unknown = dataclasses.replace(evidence, commands={})
    assert running(unknown, {path: plan})[0].up is None
