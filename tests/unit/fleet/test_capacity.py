# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.capacity import capacity
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.of_fleet import measured_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Requested
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.capacity import (
    Measured,
    Serving,
    fleet_capacity,
)

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic, bench
from support.surveys import served


def host(name, domain, planned=1, running=1, gpus=8, up=2, **more):
    one = replace(served("x", up), **more)
    return Serving(
        name, domain, domain, "MI325X", gpus, (one,) * running, (replace(one, up=None),) * planned
    )


def test_replicas_now_and_then_and_gpus_without_work():
    hosts = [host("a", "r1", running=0), host("b", "r2", up=1), host("c", "r2", gpus=16)]
    found = fleet_capacity(hosts)
    assert (found.gpus, found.used_now, found.used, found.idle) == (32, 16, 24, 8)
    assert found.idle_hosts == ("c",)
    (one,) = found.deployments
    assert (one.hosts, one.up, one.running, one.planned, one.gpus) == (3, 3, 4, 6, 24)
    assert (one.worst, one.lost) == ("r2", 4)
    assert [(place.name, place.hosts, place.gpus, place.planned) for place in found.domains] == [
        ("r2", 2, 24, 4),
        ("r1", 1, 8, 2),
    ]


def test_a_deployment_that_leaves_is_told_too():
    found = fleet_capacity([host("a", "r1", planned=0)])
    assert (found.deployments[0].running, found.deployments[0].planned) == (2, 0)
    assert (found.deployments[0].worst, found.deployments[0].lost) == ("", 0)
    assert found.idle == 8


def test_where_nobody_looked_it_is_not_known_how_many_answer():
    assert fleet_capacity([host("a", "r1", up=None)]).deployments[0].up is None
    assert fleet_capacity([host("a", "r1", running=0)]).deployments[0].up == 0


def test_no_replicas_are_lost_where_there_are_none():
    assert fleet_capacity([]).deployments == ()


MEASURED = Measured(
    served("x").model, "DP2/TP4/EP4", "vllm 0.33.0", "MI325X", 2.5, ("it is shared evenly",)
)


def test_rates_are_those_measured_times_the_hosts_that_are_like_that():
    hosts = [
        host("a", "r1"),
        host("b", "r2"),
        host("c", "r2", up=1),
        host("d", "r1", layout="DP1/TP8"),
    ]
    found = fleet_capacity(hosts, [MEASURED])
    rate = found.deployments[0].rate
    assert (rate.per_host, rate.now, rate.planned, rate.after_loss) == (2.5, 5, 7.5, 2.5)
    assert rate.unmeasured == ("d",)
    assert found.assumptions == ("it is shared evenly",)


def test_without_a_measurement_there_is_no_rate():
    other = replace(MEASURED, gpu="MI300X")
    assert fleet_capacity([host("a", "r1")]).deployments[0].rate is None
    found = fleet_capacity([host("a", "r1")], [other])
    assert found.deployments[0].rate is None
    assert found.assumptions == ()


ENVIRONMENT = {
    "model": served("x").model,
    "layout": "DP2/TP4/EP4",
    "engine": {"name": "vllm", "version": "0.33.0"},
    "gpu": "MI325X",
}


def result(name="a", **environment):
    requested = Requested(WORKLOAD, slo=SLO, phases=("baseline", "scaling", "slo"), engine_runs=3)
    return bench(Analytic(base=0.01, slope=0.0002), requested, name, 2, ENVIRONMENT | environment)


def test_a_measured_rate_is_what_apiary_capacity_counts_on():
    tp8 = result("b", layout="DP1/TP8")
    found = measured_of([result(), tp8])
    assert [one.layout for one in found] == ["DP2/TP4/EP4", "DP1/TP8"]
    assert found[0].per_host == capacity([result()], 100.0).per_host
    assert found[0].engine == "vllm 0.33.0"
    rate = fleet_capacity([host("a", "r1"), host("b", "r2")], found).deployments[0].rate
    assert rate.planned == pytest.approx(2 * found[0].per_host)


@pytest.mark.parametrize(
    ("part", "value", "word"),
    [
        ("model", None, "model"),
        ("layout", {"a": "TP8", "b": "TP4"}, "layout"),
        ("engine", None, "engine"),
        ("gpu", None, "GPU"),
    ],
)
def test_a_result_that_does_not_say_what_it_is_of_is_refused(part, value, word):
    with pytest.raises(ApiaryError) as refusal:
        measured_of([result(**{part: value})])
    (finding,) = refusal.value.findings
    assert finding.code == "FLEET-PLAN-BENCH-UNKNOWN"
    assert word in finding.message
