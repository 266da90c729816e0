# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts as settled, and how converge's reports become changes and findings."""

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
    changes_of,
    evaluate,
    refused,
    resources_of,
    running,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Change

from support.demo import demo_plan

FILE = {"kind": "file", "path": "/a", "content": "0\n"}
TUNING = Concern("host_tuning", "abc", (FILE,))
DIFF = {"before_header": "/a", "after_header": "/a", "before": "1\n", "after": "0\n"}


def report(role="host_tuning", **more):
    """What converge reports of one resource."""
    empty = {"resource": "file /a", "changed": False, "diff": [], "steps": [], "findings": []}
    return {**empty, "role": role, **more}


def survey_of(concern, *reports):
    (survey,) = evaluate([concern], reports, "gpu-001")
    return survey


def test_a_concern_without_a_change_is_settled():
    survey = survey_of(TUNING)
    assert survey.settled
    assert (survey.changes, survey.reboot, survey.findings, survey.asked) == ((), (), (), "abc")


def test_each_changed_file_is_a_change_with_its_diff():
    survey = survey_of(TUNING, report(changed=True, diff=[DIFF]))
    assert not survey.settled
    assert survey.changes == (Change("/a", "1\n", "0\n"),)


@pytest.mark.parametrize(
    "more",
    [
        {"changes": (Change("reboot"),)},
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
    ids=["a change of the controller", "a reboot", "an error", "only the role can tell"],
)
def test_what_no_resource_shows_keeps_a_concern_from_being_settled(more):
    assert not survey_of(dataclasses.replace(TUNING, **more)).settled


def test_a_warning_does_not():
    warning = Finding.from_fields(
        code="X-Y",
        severity="warning",
        subject="gpu-001",
        message="mind this",
        remedy="look",
        source=None,
    )
    survey = survey_of(dataclasses.replace(TUNING, findings=(warning,)))
    assert survey.settled
    assert survey.findings == (warning,)


def test_a_refused_concern_is_not_inspected_and_the_others_have_their_reports():
    wrong = refused("rocm", "abc", error("ROCM-VERSION", "gpu-001", "no such"))
    wrong = dataclasses.replace(wrong, resources=(FILE,))
    assert resources_of([wrong, TUNING]) == [{**FILE, "role": "host_tuning"}]
    first, second = evaluate([wrong, TUNING], [report(changed=True, diff=[DIFF])], "gpu-001")
    assert [finding.code for finding in first.findings] == ["ROCM-VERSION"]
    assert (first.changes, first.settled) == ((), False)
    assert second.changes == (Change("/a", "1\n", "0\n"),)


def test_a_resource_that_is_refused_is_a_finding_of_its_concern():
    finding = {
        "code": "HOST-LIVE-SETTING",
        "severity": "error",
        "subject": "/proc/x",
        "message": "cannot be read",
        "remedy": "see dmesg",
    }
    survey = survey_of(TUNING, report(findings=[finding]))
    assert not survey.settled
    (found,) = survey.findings
    assert (found.code, found.severity, found.subject) == ("HOST-LIVE-SETTING", "error", "/proc/x")
    assert "dmesg" in found.remedy  # the catalogue's


def test_each_step_and_each_file_is_a_change():
    changed = report(changed=True, steps=["apt-mark hold x"], diff=[DIFF])
    assert list(changes_of(changed)) == [Change("apt-mark hold x"), Change("/a", "1\n", "0\n")]


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
