# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What serving takes: money by the price of a GPU-hour, joules by measured power."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    comparison,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.cost import (
    cost_of,
    price_of,
    watts,
    with_cost,
    with_costs,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    GpuUse,
    Price,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from hypothesis import given, settings
from hypothesis import strategies as st

from support.bench.documents import SLO, TP8, bench

USD = Price(2.0)
STEPS = (1, 64)
KEYS = ("million_output_tokens", "million_tokens", "request")


def measured(**changes) -> Bench:
    return bench(**{"steps": STEPS, "open_loop": False, "stress": (), "price": USD} | changes)


def drawing(given: Bench, power) -> Bench:
    """The benchmark with other powers, one a GPU."""
    gpus = tuple(GpuUse(f"0000:{5 + n:02x}:00.0", one) for n, one in enumerate(power))
    return replace(given, levels=tuple(replace(one, gpus=gpus) for one in given.levels))


MADE = {runs: measured(engine_runs=runs) for runs in (1, 3)}


def test_units_are_those_of_the_rate_at_the_slo():
    made = drawing(measured(), [500.0] * 8)
    cost, rate = cost_of([made], "concurrency"), made.searches[0].request_rate

    # 8 GPUs at 2 USD an hour, 4 kW; a request of 5,600 tokens in and 140 out.
    assert cost.money.request.mean == pytest.approx(16 / 3600 / rate.mean, rel=1e-3)
    assert cost.joules.request.mean == pytest.approx(4000 / rate.mean, rel=1e-3)
    assert cost.watts.mean == pytest.approx(4000)
    for amounts in (cost.money, cost.joules):
        each = amounts.request.mean
        assert amounts.million_output_tokens.mean == pytest.approx(each * 1e6 / 140)
        assert amounts.million_tokens.mean == pytest.approx(each * 1e6 / 5740)
    assert (cost.gpus, cost.price) == (8, USD)
    money, energy = cost.text
    assert "USD per million tokens" in money
    assert money.endswith("8 GPUs at 2 USD an hour")
    assert energy.endswith("kJ per request: 8 GPUs at 4,000 (4,000 to 4,000) W together")


@settings(max_examples=15, deadline=None)
@given(
    price=st.floats(1e-3, 1e5),
    more=st.floats(1.01, 9.0),
    power=st.lists(st.floats(1.0, 2000.0), min_size=8, max_size=8),
    runs=st.sampled_from((1, 3)),
)
def test_intervals_hold_the_mean_and_more_costs_more(price, more, power, runs):
    made = drawing(MADE[runs], power)
    low = cost_of([replace(made, price=Price(price))], "concurrency")
    high = cost_of([drawing(made, [one * more for one in power])], "concurrency")
    dear = cost_of([replace(made, price=Price(price * more))], "concurrency")

    for key in KEYS:
        for amounts in (low.money, low.joules):
            one = getattr(amounts, key)
            assert one.n == runs
            assert one.low is None or one.low <= one.mean <= one.high
        assert getattr(high.joules, key).mean > getattr(low.joules, key).mean
        assert getattr(dear.money, key).mean == pytest.approx(getattr(low.money, key).mean * more)


def test_power_and_rate_of_one_run_stay_together():
    """A run that served 10 % more by 10 % more power took as much for each request."""
    made = drawing(measured(), [500.0] * 8)
    faster = []
    for level in made.levels:
        factor = 1 + 0.1 * level.load.engine_run
        rate = {
            name: 10.0 * factor
            for name in ("request_rate", "output_token_rate", "total_token_rate")
        }
        gpus = tuple(replace(one, power_w_mean=500.0 * factor) for one in level.gpus)
        faster.append(replace(level, measured=replace(level.measured, **rate), gpus=gpus))
    cost = cost_of([replace(made, levels=tuple(faster))], "concurrency")

    assert cost.joules.request.high - cost.joules.request.low < 1e-9
    assert cost.money.request.high - cost.money.request.low > 1e-5
    assert cost.watts.high - cost.watts.low > 100


def test_nothing_is_shown_of_what_is_not_known():
    bare = drawing(measured(price=None), [])
    cost = cost_of([bare], "concurrency")
    assert (cost.money, cost.joules, cost.watts) == (None, None, None)
    assert list(cost.text) == ["no energy: power was read of 0 GPUs, and 8 serve"]

    unknown = cost_of([measured(gpus=None)], "concurrency")
    assert (unknown.money, unknown.joules) == (None, None)
    assert "how many GPUs serve is not known" in unknown.text[0]

    mixed = cost_of([measured(), measured(price=Price(3.0))], "concurrency")
    assert mixed.money is None
    assert "several prices" in mixed.text[-1]

    silent = measured()
    levels = [
        replace(one, measured=replace(one.measured, output_token_rate=0.0)) for one in silent.levels
    ]
    cost = cost_of([replace(silent, levels=tuple(levels))], "concurrency")
    assert (cost.money, cost.joules) == (None, None)
    assert "nothing by the token" in cost.text[-1]

    hopeless = measured(slo=tuple(replace(one, seconds=1e-6) for one in SLO))
    levels = tuple(replace(one, status="SLO_MISS") for one in hopeless.levels)
    assert cost_of([replace(hopeless, levels=levels)], "concurrency") is None


def test_of_a_host_with_more_gpus_those_of_the_plan_count():
    level = drawing(measured(), [100.0, 200.0, 300.0, 400.0]).levels[0]
    assert watts(level, 4) == 1000.0
    assert watts(level, 2) is None
    assert watts(level, 2, ("0000:06:00.0", "0000:08:00.0")) == 600.0
    assert watts(level, None) is None
    for wrong in (float("nan"), float("inf"), 1e308, -5.0, None):
        broken = replace(level, gpus=(*level.gpus[:3], GpuUse("0000:08:00.0", wrong)))
        assert watts(broken, 4) is None


def test_partitions_of_a_gpu_are_one_gpu():
    made = measured()
    place = {**made.environment, "gpu_addresses": ["0000:05:00.0", "0000:06:00.0"]}
    made = replace(made, environment=place, target=replace(made.target, gpus=16))
    cost = cost_of([made], "concurrency")
    assert cost.gpus == 2
    assert cost.watts is not None


@pytest.mark.parametrize(
    ("text", "price"),
    [
        (None, None),
        ("", None),
        (2.1, Price(2.1, "USD")),
        ("2.10", Price(2.1, "USD")),
        ("2.10  EUR", Price(2.1, "EUR")),
        (" 1e3 EUR", Price(1000.0, "EUR")),
    ],
)
def test_prices(text, price):
    assert price_of(text) == price


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "nan",
        "inf",
        "1000000",
        "2,10",
        "free",
        True,
        "2.1 eur",
        "2.1 \x1b]0;x",
        "2 and 3",
    ],
)
def test_what_is_no_price_is_refused_with_one_finding(text):
    with pytest.raises(ApiaryError) as refusal:
        price_of(text)
    (finding,) = refusal.value.findings
    assert finding.code == "BENCH-PRICE"
    assert "\x1b" not in finding.message


def test_a_hostile_price_in_a_result_is_refused():
    document = to_document(measured())
    with pytest.raises(ApiaryError) as refusal:
        from_document(Bench, {**document, "price": {"gpu_hour": -2.0}}, "x")
    assert refusal.value.findings[0].code == "BENCH-PRICE"


def test_results_of_before_are_read():
    document = to_document(measured())
    del document["price"]
    for search in document["searches"]:
        del search["cost"]
    older = from_document(Bench, document, "x")
    assert older.price is None
    assert with_cost(older, USD).searches[0].cost.money is not None
    assert from_document(Bench, to_document(with_cost(older)), "x") == with_cost(older)


def test_costs_are_compared_beside_the_verdict_on_rates():
    a, b = [measured(curve=TP8, name="a")], [measured(name="b")]
    known = comparison(a, b)
    found = with_costs(known, a, b)

    assert (found.verdict, found.verdicts) == (known.verdict, known.verdicts)
    assert [one.what.split(" at ")[0] for one in found.costs] == [
        f"{unit} per {of}"
        for unit in ("J", "USD")
        for of in ("million output tokens", "million tokens", "request")
    ]
    money = found.costs[-1]
    assert money.verdict == "better"
    assert money.low < money.ratio < money.high < 1
    assert money.ratio == pytest.approx(1 / known.verdicts[0].ratio, rel=0.01)

    euros = [replace(b[0], price=Price(2.0, "EUR"))]
    assert {one.what[0] for one in with_costs(known, a, euros).costs} == {"J"}
    # Nor where one side's results have two prices, whichever comes first.
    known = comparison(a, [*b, *b])
    mixed = with_costs(known, a, [*b, replace(b[0], price=Price(4.0))])
    assert {one.what[0] for one in mixed.costs} == {"J"}
