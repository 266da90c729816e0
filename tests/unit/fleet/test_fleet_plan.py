# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet's plan from its surveys: what is counted where, and what is said of it."""

import json
from dataclasses import replace

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Applied
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import (
    Observed,
    fleet_plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    Quarantine,
    Survey,
)

from apiary.app.schemas import schema
from support.surveys import AT, changing, digest, fleet, rack_of, served, settled

CHANGE = Change("/etc/a", "1\n", "2\n")


def seen(survey, index=0, **more):
    rack = rack_of(index)
    return Observed(survey.host, survey, groups=(rack,), domain=rack, **more)


def planned(*observed, **more):
    return fleet_plan(observed, **more)


def codes(plan):
    return [one.code for one in plan.findings]


@pytest.fixture(scope="module")
def large():
    surveys = fleet(300)
    return fleet_plan(seen(survey, index) for index, survey in enumerate(surveys))


def test_a_settled_fleet_would_not_change():
    plan = planned(*(seen(settled(name), i * 8) for i, name in enumerate(("a", "b"))))
    assert not plan.would_change
    assert plan.totals.unchanged == plan.totals.hosts == 2
    assert plan.changes == plan.findings == ()
    assert [group.changes for group in plan.groups] == [()]


def test_a_fleet_without_hosts_has_a_plan():
    plan = planned()
    assert not plan.would_change
    assert plan.totals.hosts == 0
    assert (plan.oldest, plan.newest) == (None, None)


def test_every_host_is_counted_once(large):
    totals = large.totals
    assert totals.hosts == 300
    assert totals.hosts == totals.unchanged + totals.changing + totals.refused + totals.unseen
    assert totals.refused == 3
    assert totals.unseen == 3
    assert totals.rebooting == 30
    grouped = sorted(host for group in large.groups for host in group.hosts)
    unseen = [one.host for one in large.unseen]
    assert sorted([*grouped, *unseen]) == [f"gpu-{number:04d}" for number in range(1, 301)]


def test_the_document_is_what_its_schema_says(large):
    jsonschema.validate(json.loads(dumps(large)), schema("fleet-plan"))


def test_hosts_that_say_the_same_are_one_finding(large):
    (dead,) = (one for one in large.findings if one.code == "FLEET-UNREACHABLE")
    assert dead.subject == "gpu-0097, gpu-0194, gpu-0291"
    assert "connect to host {host} port 22" in dead.message
    (one,) = planned(seen(next(iter(s for s in fleet(97) if not s.reached)))).findings
    assert "connect to host gpu-0097 port 22" in one.message


def test_a_finding_about_something_of_a_host_names_both():
    warning = Finding.from_fields(
        code="HOST-X",
        severity="warning",
        subject="/etc/a",
        message="hm",
        remedy="look",
        source=None,
    )
    plan = planned(*(seen(replace(settled(name), findings=(warning,))) for name in ("n1", "n2")))
    assert plan.findings[0].subject == "n[1:2]: /etc/a"


def test_errors_come_first_and_refuse_the_host():
    refusal = Finding.from_fields(
        code="HOST-GPU-MISSING",
        severity="error",
        subject="b",
        message="7 GPUs",
        remedy="look",
        source=None,
    )
    warning = Finding.from_fields(
        code="HOST-X", severity="warning", subject="a", message="hm", remedy="look", source=None
    )
    fine = replace(settled("a"), findings=(warning,))
    broken = changing(settled("b"), "rocm", CHANGE, findings=(refusal,))
    broken = replace(broken, wanted=(served("new", layout="DP1/TP8"),))
    plan = planned(seen(fine), seen(broken, 8))
    assert codes(plan)[:2] == ["HOST-GPU-MISSING", "HOST-X"]
    assert (plan.totals.refused, plan.totals.changing) == (1, 0)
    # Nothing is applied there, so what runs goes on.
    assert plan.capacity.deployments[0].layouts == ("DP2/TP4/EP4",)


def test_a_refusal_of_the_whole_host_is_a_group_too():
    refusal = Finding.from_fields(
        code="ENGINE-X", severity="error", subject="a", message="no", remedy="look", source=None
    )
    plan = planned(seen(replace(settled("a"), findings=(refusal,))))
    assert [one.name for one in plan.changes] == ["host/1"]
    assert plan.totals.refused == 1
    assert (plan.totals.drifted, plan.totals.to_apply, plan.totals.unclear) == (0, 0, 0)


def test_a_host_without_a_survey_is_unseen():
    lost = Observed("b", None, "was not surveyed; its last survey is 3 h old", 10800)
    plan = planned(seen(settled("a")), lost, Observed("c", Survey("c", AT, reached=False)))
    assert [(one.host, one.why, one.age_seconds) for one in plan.unseen] == [
        ("b", "was not surveyed; its last survey is 3 h old", 10800),
        ("c", "could not be reached", None),
    ]
    assert plan.totals.unseen == 2


def test_old_surveys_are_told():
    plan = planned(seen(settled("a"), age_seconds=86401), seen(settled("b"), 8, age_seconds=86400))
    (old,) = plan.findings
    assert (old.code, old.subject) == ("FLEET-PLAN-SURVEY-OLD", "a")


def test_quarantined_hosts_are_told():
    left = Quarantine("a", "Serve", "no space")
    plan = planned(seen(settled("a"), quarantined=left))
    assert codes(plan) == ["FLEET-PLAN-QUARANTINED"]
    assert plan.quarantined == (left,)
    assert plan.totals.quarantined == 1


def test_hosts_without_a_place_fail_alone():
    plan = planned(Observed("a", settled("a")), Observed("b", settled("b")))
    assert codes(plan) == ["FLEET-PLAN-NO-DOMAIN"]
    assert plan.capacity.deployments[0].lost == 2


def test_a_deployment_in_one_rack_is_told():
    plan = planned(seen(settled("a")), seen(settled("b")))
    assert codes(plan) == ["FLEET-PLAN-ONE-DOMAIN"]


LEDGER = {"rocm": Applied("rocm", AT, "1", digest("rocm"))}


def test_drift_leaves_out_what_the_inventory_asks_for_since():
    moved = seen(changing(settled("a"), "rocm", CHANGE), applied=LEDGER)
    asked = seen(changing(settled("b"), "rocm", CHANGE, asked=digest("new")), 8, applied=LEDGER)
    both = planned(moved, asked)
    assert [(one.cause, one.hosts) for one in both.changes] == [
        ("drift", ("a",)),
        ("to apply", ("b",)),
    ]
    assert (both.totals.drifted, both.totals.to_apply) == (1, 1)
    drifted = planned(moved, asked, drift=True)
    assert [one.hosts for one in drifted.changes] == [("a",)]
    assert drifted.would_change
    assert (drifted.totals.drifted, drifted.totals.to_apply) == (1, 1)
    assert not planned(asked, drift=True).would_change
    assert planned(asked).would_change


def test_a_ledger_that_is_behind_is_told():
    older = {"replicas:chat": Applied("replicas:chat", AT, "1", "", digest("older"))}
    plan = planned(seen(settled("a"), applied=older))
    assert codes(plan) == ["FLEET-PLAN-LEDGER-BEHIND"]
    assert not plan.would_change
