# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet's hosts are all in its report, outliers first, findings grouped."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    STATES,
    FleetReport,
    HostInput,
)

from support.acceptances import acceptance_of, inputs, rollout_of
from support.surveys import settled

NOW = "2026-11-22T09:15:00Z"


def made(count=96, **more):
    given = list(inputs(count))
    bad = frozenset(one.host for one in given if one.quarantine)
    return fleet_report(given, NOW, rollout_of([one.host for one in given], bad), **more)


def test_every_host_is_in_the_report():
    report = made()
    assert sorted(one.host for one in report.hosts) == [one.host for one in inputs(96)]
    assert dict(report.counts) == {
        "failing": 1, "quarantined": 1, "unknown": 1, "warning": 1, "ok": 92
    }  # fmt: skip


def test_outliers_come_first():
    report = made()
    ranks = [STATES.index(one.state) for one in report.hosts]
    assert ranks == sorted(ranks)
    right = [len(one.odd) for one in report.hosts if one.state == "ok"]
    assert right == sorted(right, reverse=True)
    assert right[0] == 2


def test_findings_are_grouped_by_code():
    groups = {one.code: one for one in made().groups}
    assert groups["ACCEPT-MEMORY"].hosts == ("gpu-0067",)
    assert groups["ROCM-INSTALL"].hosts == ("gpu-0061",)
    severities = [one.severity for one in made().groups]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


def test_what_peers_share_is_told():
    shared = {one.fact: one for one in made().shared}
    assert [(one.value, len(one.hosts)) for one in shared["driver"].values] == [
        ("6.16.13", 81),
        ("6.14.14", 10),
    ]
    assert len(shared["ROCm"].values) == 1
    differing = [len(one.values) > 1 for one in made().shared]
    assert differing == sorted(differing, reverse=True)


def test_the_outcome_of_the_rollout_says_why():
    outcome = made().rollout
    assert (outcome.state, outcome.why) == ("stopped", "1 hosts failed, 0 may")
    assert outcome.counts == (("done", 95), ("quarantined", 1))


def test_it_is_accepted_only_where_every_host_is():
    good = [HostInput(f"gpu-{n}", acceptance=acceptance_of(settled(f"gpu-{n}"))) for n in range(3)]
    assert fleet_report(good, NOW).accepted
    assert fleet_report(good, NOW).findings == ()
    unknown = fleet_report([*good, HostInput("gpu-9")], NOW)
    assert not unknown.accepted
    assert [one.code for one in unknown.findings] == ["FLEET-REPORT-UNKNOWN"]
    allowed = fleet_report([*good, HostInput("gpu-9")], NOW, allow_unreached=True)
    assert allowed.accepted
    assert [one.severity for one in allowed.findings] == ["warning"]


def test_what_fails_is_never_allowed():
    report = made(allow_unreached=True)
    assert not report.accepted
    assert {one.code for one in report.findings if one.severity == "error"} == {
        "FLEET-REPORT-FAILING",
        "FLEET-REPORT-QUARANTINED",
    }


def test_the_document_can_be_read_back():
    report = made()
    assert from_document(FleetReport, to_document(report), "x") == report


def test_a_fleet_of_none():
    report = fleet_report([], NOW)
    assert report.accepted
    assert report.hosts == ()
