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


def test_welch_is_scipys():
    for sizes in ((2, 2), (3, 5), (5, 3), (40, 2)):
        draw = random.Random(sum(sizes))
        a = [draw.gauss(10, 1) for _ in range(sizes[0])]
        b = [draw.gauss(11, 3) for _ in range(sizes[1])]
        theirs = stats.ttest_ind(b, a, equal_var=False)
        assert statistics.welch(a, b) == pytest.approx(theirs.pvalue, rel=1e-9), sizes
    assert statistics.t_quantile(0.975, math.inf) == pytest.approx(stats.norm.ppf(0.975))


def test_without_variance_the_difference_is_certain():
    assert statistics.welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == pytest.approx(1)
    assert statistics.welch([5.0, 5.0, 5.0], [5.0, 5.0]) == 1
    assert statistics.welch([5.0, 5.0, 5.0], [6.0, 6.0]) == 0


def test_one_value_has_no_interval():
    found = statistics.interval([3.5])

    assert (found.n, found.mean, found.low, found.high, found.cov) == (1, 3.5, None, None, None)


def test_equal_values_have_an_interval_of_no_width():
    found = statistics.interval([0.1] * 7)

    assert (found.low, found.mean, found.high, found.cov) == (0.1, 0.1, 0.1, 0.0)


def test_a_mean_of_zero_has_no_coefficient_of_variation():
    assert statistics.interval([-1.0, 1.0]).cov is None


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


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "function",
    [
        statistics.mean,
        statistics.stdev,
        statistics.interval,
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
        lambda: statistics.ratio_interval([0.0, 0.0], [1.0, 2.0]),
        lambda: statistics.ratio_interval([1.0, 2.0], [3.0, -1.0]),
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
