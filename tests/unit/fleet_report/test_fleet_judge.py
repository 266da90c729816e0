# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host, by what its last survey, acceptance and rollout left behind."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import judge
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    HostInput,
    Odd,
    Source,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import age_text

from support.acceptances import LATER, acceptance_of, failed, ledger_of, quarantine_of
from support.surveys import AT, fleet, settled

SURVEY = settled("gpu-0001")
GOOD = acceptance_of(SURVEY)
DEAD = next(one for one in fleet(100) if not one.reached)
SICK = next(one for one in fleet(100) if one.facts.health == "sick")
BAD = failed(GOOD, "ACCEPT-UNCORRECTABLE", "3 in umc", "reset it", "ue: 3")
WARNED = failed(GOOD, "ACCEPT-MEMORY", "2000 GiB", "look")
BEFORE = "2026-11-22T08:00:00Z"


def state(**given):
    return judge(HostInput("gpu-0001", **given)).state


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "unknown"),
        ({"survey": SURVEY}, "unknown"),
        ({"acceptance": GOOD}, "ok"),
        ({"survey": SURVEY, "acceptance": GOOD}, "ok"),
        ({"survey": SURVEY, "acceptance": BAD}, "failing"),
        ({"survey": SURVEY, "acceptance": WARNED}, "warning"),
        ({"survey": DEAD}, "unreached"),
        ({"survey": SICK}, "failing"),
        (
            {"survey": SURVEY, "acceptance": GOOD, "quarantine": Quarantine("x", "", "")},
            "quarantined",
        ),
        ({"survey": DEAD, "quarantine": quarantine_of("x")}, "quarantined"),
        # What came later holds.
        ({"survey": DEAD, "acceptance": GOOD}, "ok"),
        ({"survey": DEAD, "acceptance": replace(GOOD, collected_at=BEFORE)}, "unreached"),
        ({"survey": SICK, "acceptance": replace(GOOD, collected_at=BEFORE)}, "failing"),
        ({"survey": SICK, "acceptance": GOOD}, "ok"),
    ],
)
def test_the_state_of_a_host(given, expected):
    made = judge(HostInput("gpu-0001", **given))
    assert made.state == expected
    assert made.why


def test_a_document_that_cannot_be_read_is_a_failure():
    damaged = Finding.from_fields(
        code="FILE-SYNTAX",
        severity="error",
        subject="x",
        message="is no JSON",
        remedy="delete it",
        source=None,
    )
    made = judge(HostInput("h", acceptance=GOOD, problems=(damaged,)))
    assert (made.state, made.why) == ("failing", "FILE-SYNTAX: is no JSON")


def test_failed_checks_come_with_their_evidence_and_counts():
    made = judge(HostInput("gpu-0001", acceptance=BAD))
    assert [one.code for one in made.failed] == ["ACCEPT-UNCORRECTABLE"]
    assert made.checks[0].code == "ACCEPT-UNCORRECTABLE"
    assert (made.checks[0].failed, made.checks[0].passed) == (1, 7)
    assert sum(one.passed for one in made.checks) == len(BAD.checks) - 1
    assert made.excerpts[0].text == "ue: 3"


def test_replicas_that_are_down_since_are_a_warning():
    one_down = tuple(replace(one, up=1) for one in SURVEY.running)
    survey = replace(SURVEY, running=one_down, collected_at="2026-11-22T10:00:00Z")
    made = judge(HostInput("gpu-0001", survey=survey, acceptance=GOOD))
    assert [one.code for one in made.findings] == ["FLEET-REPORT-REPLICAS"]
    assert made.state == "warning"


def test_an_old_acceptance_is_a_warning():
    source = Source("acceptance", "x", LATER, 90_000)
    given = HostInput("gpu-0001", acceptance=GOOD, sources=(source,))
    assert judge(given, stale_seconds=86_400).state == "warning"
    assert judge(given, stale_seconds=100_000).state == "ok"
    assert judge(given).state == "ok"


def test_a_rollout_that_ended_badly_is_told_until_an_acceptance_follows():
    bad = ledger_of("gpu-0001", False)
    old = replace(GOOD, collected_at=BEFORE)
    told = judge(HostInput("gpu-0001", acceptance=old, ledger=bad))
    assert [one.code for one in told.findings] == ["FLEET-REPORT-ROLLOUT"]
    assert told.last_run.outcome == "quarantined"
    assert judge(HostInput("gpu-0001", acceptance=GOOD, ledger=bad)).findings == ()
    well = judge(HostInput("gpu-0001", acceptance=old, ledger=ledger_of("gpu-0001", True)))
    assert well.findings == ()
    assert "rocm" in well.last_run.applied


def test_a_rollout_that_noted_no_end_is_told():
    """Its controller may have been killed: nobody knows how far the host got."""
    bad = ledger_of("gpu-0001", False)
    begun = replace(bad.entries[-1], ended_at=None, outcome="begun", findings=(), reason="")
    left = replace(bad, entries=(*bad.entries[:-1], begun))
    old = replace(GOOD, collected_at=BEFORE)
    (told,) = judge(HostInput("gpu-0001", acceptance=old, ledger=left)).findings
    assert told.code == "FLEET-REPORT-ROLLOUT"
    assert "noted no end" in told.message


def test_what_a_run_would_change_is_told_and_changes_no_state():
    survey = next(one for one in fleet(100) if any(not each.settled for each in one.concerns))
    made = judge(HostInput("h", survey=survey, acceptance=GOOD))
    assert [one.concern for one in made.pending] == ["rocm"]
    assert made.state == "ok"


def test_standing_out_is_no_fault():
    made = judge(HostInput("h", acceptance=GOOD), [Odd("driver", "6.14.14", "6.16.13", 90)])
    assert made.state == "ok"
    assert made.findings[0].severity == "info"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (500_000, "5 days")],
)
def test_ages(seconds, told):
    assert age_text(seconds) == told


def test_the_survey_is_older_than_the_acceptance_in_these_tests():
    assert AT < LATER
