# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The statistics of repeats against scipy and numpy."""

import math
import random
import sys

import numpy
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison import statistics
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from scipy import stats

DEGREES = [0.3, 0.9, 1, 1.5, 2, 3, 4, 5.7, 10, 30, 99.5, 500, 999, 1000, 1001, 5e3, 1e5, 1e7, 1e12]
SHARES = [1e-12, 1e-6, 0.001, 0.025, 0.1, 0.4, 0.49, 0.5, 0.6, 0.8, 0.9, 0.95, 0.975, 0.995, 0.9999]


@pytest.mark.parametrize("df", DEGREES)
def test_t_quantile_is_scipys(df):
    for share in SHARES:
        ours, theirs = statistics.t_quantile(share, df), stats.t.ppf(share, df)
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9), share


def test_t_quantile_of_endless_degrees_is_the_normal_one():
    assert statistics.t_quantile(0.975, math.inf) == pytest.approx(stats.norm.ppf(0.975), rel=1e-12)


@pytest.mark.parametrize("df", [1, 2, 4.2, 17, 250, 3000])
def test_p_is_scipys(df):
    for t in (0, 1e-4, 0.3, 1, 2.5, 8, 40, math.inf):
        assert statistics.two_sided_p(t, df) == pytest.approx(
            2 * stats.t.sf(t, df), rel=1e-9, abs=1e-15
        )
    assert statistics.two_sided_p(2.5, math.inf) == pytest.approx(2 * stats.norm.sf(2.5))


def test_the_interval_of_the_studys_table_24():
    # 4.0 % of 6,808 over five restarts is printed there as +-336.
    spread = 0.04 * 6808
    values = [
        6808 + spread * step for step in (-1.26491106, -0.63245553, 0, 0.63245553, 1.26491106)
    ]
    found = statistics.interval(values)

    assert found.cov == pytest.approx(0.04)
    assert found.high - found.mean == pytest.approx(338, abs=0.5)


@pytest.mark.parametrize("size", [2, 3, 5, 40])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_interval_is_scipys(size, level):
    values = [random.Random(size).gauss(10, 2) for _ in range(size)]
    found = statistics.interval(values, level)
    half = stats.t.ppf((1 + level) / 2, size - 1) * float(stats.sem(values))
    low, high = numpy.mean(values) - half, numpy.mean(values) + half

    assert (found.n, found.mean) == (size, pytest.approx(numpy.mean(values)))
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))
    assert found.cov == pytest.approx(numpy.std(values, ddof=1) / numpy.mean(values))


def test_one_value_has_no_interval():
    found = statistics.interval([3.5])

    assert (found.n, found.mean, found.low, found.high, found.cov) == (1, 3.5, None, None, None)


def test_equal_values_have_an_interval_of_no_width():
    found = statistics.interval([0.1] * 7)

    assert (found.low, found.mean, found.high, found.cov) == (0.1, 0.1, 0.1, 0.0)


def test_a_mean_of_zero_has_no_coefficient_of_variation():
    assert statistics.interval([-1.0, 1.0]).cov is None


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (5, 3), (40, 2)])
def test_welch_is_scipys(sizes):
    draw = random.Random(sum(sizes))
    a = [draw.gauss(10, 1) for _ in range(sizes[0])]
    b = [draw.gauss(11, 3) for _ in range(sizes[1])]
    ours, theirs = statistics.welch(a, b), stats.ttest_ind(b, a, equal_var=False)
    bounds = theirs.confidence_interval(0.95)

    assert ours.t == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.df == pytest.approx(theirs.df, rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == (
        pytest.approx(bounds.low, rel=1e-9),
        pytest.approx(bounds.high, rel=1e-9),
    )


def test_equal_samples_do_not_differ():
    found = statistics.welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])

    assert (found.difference, found.t, found.p) == (0, 0, pytest.approx(1))
    assert statistics.ratio_interval([1.0, 2.0], [1.0, 2.0]).ratio == 1


@pytest.mark.parametrize(("b", "p"), [([5.0, 5.0], 1.0), ([6.0, 6.0], 0.0)])
def test_without_variance_the_difference_is_certain(b, p):
    found = statistics.welch([5.0, 5.0, 5.0], b)

    assert (found.p, found.low, found.high) == (p, b[0] - 5, b[0] - 5)


def test_one_side_without_variance_has_the_others_degrees():
    assert statistics.welch([5.0, 5.0, 5.0], [4.0, 6.0]).df == pytest.approx(1)


def test_tiny_and_huge_values_keep_their_degrees():
    for scale in (1e-150, 1e150):
        found = statistics.welch([scale, 2 * scale, 3 * scale], [scale, 5 * scale])
        theirs = statistics.welch([1.0, 2.0, 3.0], [1.0, 5.0])
        assert (found.df, found.p) == (pytest.approx(theirs.df), pytest.approx(theirs.p))
    assert statistics.mean([1.5e308, 1.7e308]) == pytest.approx(1.6e308)


def test_a_ratio_is_the_reciprocal_of_its_reverse():
    a, b = [10.0, 11.0, 10.5], [13.0, 14.5, 12.0, 13.0]
    there, back = statistics.ratio_interval(a, b), statistics.ratio_interval(b, a)

    assert there.ratio == pytest.approx(1 / back.ratio)
    assert (there.low, there.high) == (pytest.approx(1 / back.high), pytest.approx(1 / back.low))


def test_a_ratio_agrees_with_fiellers_where_its_exact():
    # Equal variances known to be so: Fieller's with the pooled degrees is exact then.
    draw = random.Random(1)
    for _ in range(20):
        a = [draw.gauss(100, 3) for _ in range(5)]
        b = [draw.gauss(110, 3) for _ in range(5)]
        ours = statistics.ratio_interval(a, b)
        pooled = (numpy.var(a, ddof=1) + numpy.var(b, ddof=1)) / 2
        g = stats.t.ppf(0.975, 8) ** 2 * pooled / 5
        x, y = numpy.mean(a), numpy.mean(b)
        root = math.sqrt((x * y) ** 2 - (x**2 - g) * (y**2 - g))
        low, high = (x * y - root) / (x**2 - g), (x * y + root) / (x**2 - g)
        # Welch's fewer degrees make ours a little wider.
        assert ours.low == pytest.approx(low, abs=0.01)
        assert ours.high == pytest.approx(high, abs=0.01)


@pytest.mark.parametrize("sizes", [(3, 3), (3, 8)])
def test_a_ratios_interval_holds_the_truth_as_often_as_the_differences(sizes):
    draw, held, rounds = random.Random(7), [0, 0], 500
    for _ in range(rounds):
        a = [draw.gauss(100, 6) for _ in range(sizes[0])]
        b = [draw.gauss(120, 3) for _ in range(sizes[1])]
        ratio, difference = statistics.ratio_interval(a, b), statistics.welch(a, b)
        held[0] += ratio.low <= 1.2 <= ratio.high
        held[1] += difference.low <= 20 <= difference.high
    # Welch's own interval holds it a little less often than 95 % where the small side varies most.
    assert 0.92 <= held[0] / rounds <= 0.985
    assert held[0] == pytest.approx(held[1], abs=0.01 * rounds)


def test_quantile_of_many_values_is_numpys():
    values = [random.Random(3).lognormvariate(0, 1) for _ in range(20_000)]
    for share in (0, 0.5, 0.9, 0.99, 1):
        assert statistics.quantile(values, share) == pytest.approx(numpy.quantile(values, share))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "function",
    [
        statistics.mean,
        statistics.stdev,
        statistics.interval,
        lambda values: statistics.quantile(values, 0.5),
        lambda values: statistics.welch([1.0, 2.0], values),
        lambda values: statistics.ratio_interval(values, [1.0, 2.0]),
    ],
)
def test_what_is_no_number_is_refused(function, wrong):
    with pytest.raises(ApiaryError, match="BENCH-STATISTICS"):
        function([1.0, wrong, 2.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: statistics.mean([]),
        lambda: statistics.stdev([1.0]),
        lambda: statistics.welch([1.0], [1.0, 2.0]),
        lambda: statistics.quantile([1.0], 1.5),
        lambda: statistics.ratio_interval([1.0, 0.0], [1.0, 2.0]),
    ],
)
def test_what_has_no_answer_is_refused(call):
    with pytest.raises(ApiaryError, match="BENCH-STATISTICS"):
        call()


def test_without_scipy_there_is_no_interval_and_one_clear_refusal(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    found = statistics.interval([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.low, found.high, found.cov) == (3, 2.0, None, None, 0.5)
    with pytest.raises(ApiaryError) as refusal:
        statistics.welch([1.0, 2.0], [3.0, 4.0])
    (finding,) = refusal.value.findings
    assert (finding.code, finding.severity) == ("BENCH-EXTRA", "error")
    assert "pip install 'apiary[bench]'" in finding.remedy
