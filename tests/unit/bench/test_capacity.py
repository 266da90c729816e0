# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for a rate, from measured results only."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.capacity import capacity
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Requested
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic, bench

PHASES = ("baseline", "scaling", "slo", "open")
ASKED = Requested(WORKLOAD, slo=SLO, phases=PHASES, engine_runs=3, search_by="concurrency")
ONE = replace(ASKED, engine_runs=1)


def measured(name="a", requested=ASKED, hosts=1, layout="TP8", **engine):
    facts = {"base": 0.01, "slope": 0.0002, "noise": 0.003} | engine
    return bench(Analytic(**facts), requested, name, hosts, {"layout": layout})


def values(found):
    return {line.what: line.value for line in found.lines}


def codes(found):
    return [finding.code for finding in found.findings]


def test_the_arithmetic_is_shown_line_by_line():
    found = capacity([measured()], 300.0, spare=2, batch=1)

    lines = values(found)
    assert lines["rate at the SLO"] == pytest.approx(200 / (50 * 0.05), rel=0.05)
    assert lines["lower end of its interval"] == found.rate.low < found.rate.mean
    assert lines["counted on"] == min(
        lines["lower end of its interval"], lines["random arrivals that kept the SLO"]
    )
    assert lines["hosts for the target"] == pytest.approx(300 / lines["one host"])
    assert lines["rounded up"] == 4
    assert found.hosts == lines["hosts"] == 4 + 2 + 1
    assert found.busy == pytest.approx(300 / (7 * found.per_host))
    assert all(line.how and line.unit for line in found.lines)
    assert codes(found) == []


def test_a_result_of_several_hosts_is_shared_among_them():
    one, four = capacity([measured()], 300.0), capacity([measured(hosts=4)], 300.0)

    assert four.per_host == pytest.approx(one.per_host / 4)
    assert (one.hosts, four.hosts) == (4 + 1, 16 + 1)


def test_a_rate_that_fits_exactly_needs_no_further_host():
    rate = capacity([measured()], 1.0).per_host

    assert capacity([measured()], 3 * rate, spare=0).hosts == 3
    assert capacity([measured()], 3 * rate + 1e-3, spare=0).hosts == 4
    assert capacity([measured()], rate / 100, spare=0).hosts == 1


def test_more_noise_needs_more_hosts():
    sure, unsure = measured(), measured(engine_run_noise=0.06)

    assert capacity([unsure], 3000.0).hosts > capacity([sure], 3000.0).hosts


def test_one_engine_run_and_a_closed_loop_are_said():
    requested = replace(ASKED, engine_runs=1, phases=("scaling", "slo"))
    found = capacity([measured(requested=requested)], 100.0)

    assert codes(found) == ["CAPACITY-LIVES", "CAPACITY-CLOSED-LOOP"]
    assert "random arrivals that kept the SLO" not in values(found)


def test_a_search_by_rate_is_of_random_arrivals():
    requested = replace(ASKED, search_by="request_rate", phases=("slo",))

    assert codes(capacity([measured(requested=requested)], 100.0)) == []


def test_a_search_that_met_its_ceiling_is_a_lower_bound():
    requested = replace(ASKED, most=32)

    assert codes(capacity([measured(requested=requested)], 100.0)) == ["CAPACITY-CEILING"]


def test_random_arrivals_that_keep_less_are_what_counts():
    class Bursty(Analytic):
        def in_flight(self, rate, tokens):
            return None if rate > 50 else super().in_flight(rate, tokens)

    requested = replace(ASKED, slo=SLO)
    result = bench(Bursty(base=0.01, slope=0.0002, slots=1000), requested)
    found = capacity([result], 100.0)

    assert found.per_host == pytest.approx(0.5 * 80, rel=0.02)
    assert found.hosts == 3 + 1


def test_several_benchmarks_of_one_configuration_are_its_engine_runs():
    requested = replace(ASKED, engine_runs=1)
    found = capacity([measured(f"a{n}", requested, luck=n) for n in range(3)], 100.0)

    assert found.rate.n == 3
    assert codes(found) == []


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], "CAPACITY-MIXED"),
        ([measured(), measured("b", layout="DP2/TP4")], "CAPACITY-MIXED"),
        ([measured(requested=replace(ASKED, slo=()))], "CAPACITY-NO-SLO"),
        ([measured(base=0.06)], "CAPACITY-NO-SLO"),
        ([measured(requested=replace(ASKED, phases=("scaling",)))], "CAPACITY-NO-SLO"),
        ([measured(hosts=None)], "CAPACITY-HOSTS"),
        ([measured(requested=ONE), measured("b", ONE, base=0.03)], "CAPACITY-UNCERTAIN"),
    ],
)
def test_what_cannot_be_known_is_refused(results, code):
    with pytest.raises(ApiaryError, match=code):
        capacity(results, 100.0)


def test_random_arrivals_that_never_keep_the_limits_are_refused():
    class Bursty(Analytic):
        def in_flight(self, rate, tokens):
            return None

    result = bench(Bursty(base=0.01, slope=0.0002, slots=1000), ASKED)
    with pytest.raises(ApiaryError, match="random arrivals kept the limits at no measured rate"):
        capacity([result], 100.0)


def test_hosts_can_be_said_where_the_result_does_not():
    assert capacity([measured(hosts=None)], 300.0, hosts=2).hosts == 8 + 1


@pytest.mark.parametrize(
    ("rate", "spare", "batch"),
    [(0, 1, 0), (-1, 1, 0), (float("nan"), 1, 0), (1, -1, 0), (1, 1, -1)],
)
def test_a_target_that_is_none_is_refused(rate, spare, batch):
    with pytest.raises(ApiaryError, match="CAPACITY-TARGET"):
        capacity([measured()], rate, spare, batch)


def test_engine_runs_are_counted_as_measured_not_as_requested():
    # Five were requested; the engine was gone after the first.
    cut = replace(measured(requested=ONE), requested=replace(ONE, engine_runs=5))
    assert "CAPACITY-LIVES" in codes(capacity([cut], 100.0))


def test_one_engine_run_given_three_times_is_one_engine_run():
    once = capacity([measured(requested=ONE)], 100.0)
    thrice = capacity([measured(requested=ONE)] * 3, 100.0)
    assert "CAPACITY-LIVES" in codes(thrice)
    assert (thrice.hosts, thrice.rate) == (once.hosts, once.rate)
    assert "in one engine run" in thrice.lines[0].how
    assert "3 engine runs" in capacity([measured()], 100.0).lines[0].how
