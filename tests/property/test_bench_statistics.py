# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The statistics of repeats: equal to scipy and numpy, whatever the values."""

import numpy
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison import statistics
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    compare_values,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
RATES = st.floats(0.01, 1e5)
FEW = st.lists(NUMBERS, min_size=2, max_size=12)
SIDES = st.lists(RATES, min_size=2, max_size=8)


@given(FEW)
def test_mean_and_deviation_are_numpys(values):
    assert statistics.mean(values) == pytest.approx(numpy.mean(values), rel=1e-9, abs=1e-9)
    assert statistics.stdev(values) == pytest.approx(numpy.std(values, ddof=1), rel=1e-7, abs=1e-8)


@given(st.floats(0.001, 0.999), st.floats(0.5, 1e6))
def test_t_quantile_is_scipys(share, df):
    assert statistics.t_quantile(share, df) == pytest.approx(
        stats.t.ppf(share, df), rel=1e-9, abs=1e-9
    )


@given(FEW, FEW)
def test_welch_is_scipys(a, b):
    spread = numpy.std(a, ddof=1), numpy.std(b, ddof=1)
    # Below that scipy's own variances have lost their digits.
    assume(min(spread) > 1e-6 * max(1, *map(abs, (*a, *b))))
    ours, theirs = statistics.welch(a, b), stats.ttest_ind(b, a, equal_var=False)

    assert ours == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-9)


@given(SIDES, SIDES)
def test_a_verdict_turns_round_with_its_sides(a, b):
    there, back = compare_values(a, b), compare_values(b, a)

    turned = {"better": "worse", "worse": "better"}
    assert back.verdict == turned.get(there.verdict, there.verdict)


@given(SIDES, SIDES)
def test_a_difference_is_only_found_where_the_interval_and_the_gain_say_so(a, b):
    found = compare_values(a, b)

    assert found.low <= found.ratio <= found.high
    if found.verdict != "no difference found":
        assert not found.low <= 1 <= found.high
        assert max(found.ratio, 1 / found.ratio) > 1.03


@given(SIDES)
def test_the_same_values_never_differ(values):
    assert compare_values(values, values).verdict == "no difference found"
