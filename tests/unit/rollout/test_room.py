# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts may be taken out as a whole."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.batches import room_for

UP = {"up": True, "state": "ready"}


def fleet(hosts, replicas=2, deployment="x"):
    return {
        f"{deployment}/gpu-{host}-{index}": UP
        for host in range(1, hosts + 1)
        for index in range(replicas)
    }


def codes(servers, hosts, most="25%", allow=False):
    return [one.code for one in room_for(servers, hosts, most, allow)]


@pytest.mark.parametrize(
    ("hosts", "leaving", "most", "expected"),
    [
        (4, ["gpu-1"], "25%", []),
        (4, ["gpu-1", "gpu-2"], "25%", ["ROLLOUT-MAX-UNAVAILABLE"]),
        (2, ["gpu-1"], "25%", ["ROLLOUT-MAX-UNAVAILABLE"]),
        (2, ["gpu-1"], "50%", []),
        (2, ["gpu-1", "gpu-2"], "100%", ["ROLLOUT-OUTAGE"]),
        (1, ["gpu-1"], "100%", ["ROLLOUT-OUTAGE"]),
        (4, ["gpu-9"], "25%", []),
    ],
)
def test_a_host_takes_all_of_its_replicas(hosts, leaving, most, expected):
    assert codes(fleet(hosts), leaving, most) == expected


def test_what_is_down_elsewhere_counts():
    servers = fleet(4) | {"x/gpu-2-0": {"up": True, "state": "drain"}}
    (finding,) = room_for(servers, ["gpu-1"], "25%")
    assert finding.code == "ROLLOUT-MAX-UNAVAILABLE"
    assert finding.message.startswith("1 of 8 replicas do not serve already, and it takes out 2")


def test_a_host_that_serves_nothing_costs_nothing():
    gone = {"up": False, "state": "ready"}
    servers = fleet(1) | {"x/gpu-2-0": gone, "x/gpu-2-1": gone}
    assert codes(servers, ["gpu-2"]) == []


def test_deployments_are_counted_apart_and_names_may_have_dashes():
    servers = fleet(4) | {"y-0/gpu-1-0": UP}
    (finding,) = room_for(servers, ["gpu-1"], "25%")
    assert finding.code == "ROLLOUT-OUTAGE"
    assert "nothing of y-0" in finding.message


def test_an_outage_that_is_allowed_is_a_warning():
    (finding,) = room_for(fleet(1), ["gpu-1"], "25%", allow_outage=True)
    assert finding.severity == "warning"
