# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes, canaries, retries: what is asked, and what is refused with a remedy."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.order import (
    Member,
    order_hosts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import try_again

FLEET = [Member(f"h{number:02d}", f"r{(number - 1) // 3}") for number in range(1, 13)]


def hosts(order):
    return [wave.hosts for wave in order.waves]


def codes(order):
    return [finding.code for finding in order.findings]


def test_a_canary_and_then_growing_batches_over_racks():
    order = order_hosts(FLEET, ["2", "100%"], ["h05"])
    assert hosts(order) == [
        ("h05",),
        ("h01", "h07"),
        ("h02", "h04", "h08", "h10"),
        ("h03", "h06", "h09", "h11"),
        ("h12",),
    ]
    assert [wave.canary for wave in order.waves] == [True, False, False, False, False]
    assert codes(order) == ["FLEET-BATCH-CUT"]


def test_a_number_of_canaries():
    assert hosts(order_hosts(FLEET, ["100%"], ["25%"], together=3)) == [
        ("h01", "h04", "h07"),
        ("h02", "h03", "h05", "h06", "h08", "h09", "h10", "h11", "h12"),
    ]


def test_hosts_without_a_domain_go_with_any_other_and_that_is_said():
    order = order_hosts([Member("a"), Member("b"), Member("c", "r1")], ["100%"])
    assert hosts(order) == [("a", "b", "c")]
    assert codes(order) == ["FLEET-NO-DOMAIN"]


@pytest.mark.parametrize(
    ("sizes", "canary", "together", "code"),
    [
        (["0"], [], 1, "FLEET-BATCHES"),
        (["many"], [], 1, "FLEET-BATCHES"),
        (["101%"], [], 1, "FLEET-BATCHES"),
        ([], [], 1, "FLEET-BATCHES"),
        (["1"], [], 0, "FLEET-BATCHES"),
        (["1"], ["gpu-999"], 1, "FLEET-CANARY"),
        (["1"], ["h01", "2"], 1, "FLEET-CANARY"),
    ],
)
def test_what_cannot_be_met_is_refused(sizes, canary, together, code):
    with pytest.raises(ApiaryError) as refusal:
        order_hosts(FLEET, sizes, canary, together)
    assert [finding.code for finding in refusal.value.findings] == [code]


def test_nobody_to_order():
    assert order_hosts([], ["1"]).waves == ()


def again(message="", *, unreachable=False, attempt=1, most=None, findings=()):
    return try_again(message, findings, unreachable=unreachable, attempt=attempt, most=most)


def test_what_goes_away_by_itself_is_tried_again_and_not_for_ever():
    lock = "Failed to lock apt for exclusive operation: Failed to lock /var/lib/apt/lists/lock"
    assert again(lock).rule == "package-lock"
    assert again("E: Could not get lock /var/lib/dpkg/lock-frontend.").rule == "package-lock"
    assert again("Timeout (12s) waiting for privilege escalation prompt: ").rule == "timeout"
    assert again(unreachable=True).delay_seconds == 20
    assert again(unreachable=True, attempt=3) is None
    assert again(unreachable=True, attempt=3, most=5) is not None
    assert again(lock, most=0) is None


def test_what_is_refused_stays_refused():
    refusal = Finding.from_fields(
        code="HOST-X",
        severity="error",
        subject="h",
        message="Connection timed out",
        remedy="mend it",
        source=None,
    )
    assert again("sudo: a password is required") is None
    assert again("Connection timed out", findings=[refusal]) is None
    assert again("Connection timed out") is not None
