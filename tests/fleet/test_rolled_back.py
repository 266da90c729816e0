# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A release that does not start: twelve hosts, one canary, and nobody else gets it."""

from __future__ import annotations

from .conftest import ROOT, UNIT

VARIABLES = ("-e", f"@{ROOT}/tests/fleet/variables.yml")
CANARY = "gpu-004"


def starts(operator):
    """Return which start of each replica this is, by systemd's own mark."""
    asked = f"systemctl show --property=InvocationID --value {UNIT}"
    return {host: operator.fleet.run(host, asked).strip() for host in operator.hosts}


def test_a_bad_canary_stops_the_rollout_and_is_rolled_back(operator):
    site = ("site", "-i", "inventory/lab", *VARIABLES, "--yes", "--batches", "100%")
    if not all(operator.serves(host) for host in operator.hosts):
        code, run, said = operator.rollout(*site)
        assert code == 0, (said, run)
    before, plans = starts(operator), {host: operator.plan_on(host) for host in operator.hosts}
    code, run, said = operator.rollout(
        *("replicas", "-i", "inventory/lab", *VARIABLES, "--yes"),
        *("--canary", CANARY, "--batches", "25%,100%"),
        *("-e", "fleet_executable=/opt/vllm/bin/missing", "-e", "rollout_allow_outage=true"),
    )
    assert code == 1, said
    assert run["state"] == "failed"
    assert run["waves"][0]["hosts"] == [CANARY]
    outcomes = {one["host"]: one["outcome"] for one in run["hosts"]}
    assert outcomes.pop(CANARY) == "rolled back"
    assert set(outcomes.values()) == {"waiting"}

    codes = [one["code"] for one in run["findings"]]
    assert "FLEET-CANARY-FAILED" in codes
    (why,) = [one for one in run["findings"] if one["code"] == "FLEET-CANARY-FAILED"]
    assert why["subject"] == CANARY
    assert "REPLICA-" in why["message"]
    shown = operator.shown()
    for words in (CANARY, "rolled back", "FLEET-CANARY-FAILED", "REPLICA-"):
        assert words in shown, shown

    # The canary serves what it served before, and nobody else was touched.
    after = starts(operator)
    assert {host: after[host] for host in outcomes} == {host: before[host] for host in outcomes}
    assert after[CANARY] != before[CANARY]
    for host in operator.hosts:
        assert operator.plan_on(host) == plans[host]
        assert operator.serves(host)
    entry = operator.last(CANARY)
    assert entry["outcome"] == "rolled back"
    assert "REPLICA-" in entry["reason"]
    assert operator.ledger("gpu-001")["entries"][-1]["run"] != run["id"]
