# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What routers answered: who was reached, what is in work, what is up."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.read import (
    cannot_drain,
    goes_on_without,
    not_drained,
    not_up,
    read_answers,
    still_drained,
    still_sends,
)

DONE = {"r": "r1", "finished": True, "findings": []}
BUSY = {"r": "r2", "finished": False, "findings": [{"subject": "x/a-0"}]}
DEAD = {"r": "r3", "unreachable": True}
FAILED = {"r": "r4", "failed": True, "msg": "no socket"}
ROUTERS = ["r1", "r2", "r3", "r4", "r5"]


def codes(findings):
    return [(one.code, one.severity, one.subject) for one in findings]


def test_who_answered_who_was_unreachable_and_who_is_lost():
    read = read_answers([DONE, BUSY, DEAD, FAILED], ROUTERS, "r")
    assert read.answered == ("r1", "r2")
    assert read.unreachable == ("r3",)
    assert read.lost == ("r3", "r4", "r5")
    assert read.results == (DONE, BUSY)


def test_no_router_lost_is_no_finding():
    nothing = [*cannot_drain([], "a"), *still_sends([], ["a-0"]), *goes_on_without([])]
    assert [*nothing, *still_drained([], "a", "error")] == []


def test_what_a_lost_router_means():
    code, names = "ROLLOUT-ROUTER-UNREACHABLE", "r3, r4"
    lost = ["r3", "r4"]
    assert codes(cannot_drain(lost, "a")) == [(code, "error", names)]
    assert codes(still_sends(lost, ["a-0"])) == [(code, "error", names)]
    assert codes(goes_on_without(lost)) == [(code, "warning", names)]
    assert codes(still_drained(lost, "a", "warning")) == [(code, "warning", names)]


def test_what_is_in_work_is_not_drained():
    assert codes(not_drained([DONE], "a", 300)) == []
    assert codes(not_drained([DONE, BUSY], "a", 5)) == [("ROUTER-DRAIN-TIMEOUT", "error", "a")]


def test_what_is_not_up_is_named():
    assert codes(not_up([DONE], "r")) == []
    (finding,) = not_up([DONE, BUSY], "r")
    assert (finding.code, finding.subject) == ("ROUTER-NOT-UP", "r2")
    assert finding.message == "x/a-0 not up"
