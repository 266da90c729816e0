# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The statistics of repeats: t-intervals, Welch's test, ratios; as scipy has them, without it.

Every function takes finite numbers and raises BENCH-STATISTICS for others, or for too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ...findings import error
from ..types import Interval

_TINY = 1e-300
# Above this many degrees of freedom four terms of the expansion are exact to 1e-11.
_EXPANSION_FROM = 1000.0


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of mean(b) - mean(a): two-sided ``p``, and the difference's interval."""

    difference: float
    low: float
    high: float
    t: float
    df: float
    p: float


@dataclass(frozen=True)
class Ratio:
    """mean(b) / mean(a) with its interval; ``error`` is the standard error of its logarithm."""

    ratio: float
    low: float
    high: float
    df: float
    error: float


def finite(values: Sequence[float], least: int = 1) -> tuple[float, ...]:
    """Return the values, having checked that each is a number and that there are enough."""
    if len(values) < least:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"{len(values)} values, expected at least {least}",
            "measure more repeats",
        )
    wrong = [value for value in values if not math.isfinite(value)]
    if wrong:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"{wrong[0]} among the values, expected finite numbers",
            "look at the raw result of the level that gave it",
        )
    return tuple(float(value) for value in values)


def mean(values: Sequence[float]) -> float:
    """Return the mean; it lies between the smallest and the largest value."""
    checked = finite(values)
    scale = math.fsum(value / len(checked) for value in checked)  # the sum itself may overflow
    return min(max(scale, min(checked)), max(checked))


def stdev(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1) of at least two values."""
    checked = finite(values, 2)
    middle = mean(checked)
    return math.hypot(*(value - middle for value in checked)) / math.sqrt(len(checked) - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) lies, interpolated as numpy does."""
    if not 0 <= share <= 1:
        raise error(
            "BENCH-STATISTICS", "statistics", f"quantile {share}, expected 0 to 1", "pass a share"
        )
    ordered = sorted(finite(values))
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above, part = min(below + 1, len(ordered) - 1), position - below
    low, high = ordered[below], ordered[above]
    return min(max(low * (1 - part) + high * part, low), high)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's continued fraction.

    Source: Press et al., Numerical Recipes, 6.4; DLMF 8.17.22.
    """
    return _beta(x, 1 - x, a, b)


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """Return I_x(a, b); ``rest`` is 1 - x, which the caller may know better than x tells."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    front = math.exp(
        a * (math.log(x) if x < 0.5 else math.log1p(-rest))
        + b * (math.log(rest) if rest < 0.5 else math.log1p(-x))
        + math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
    )
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _fraction(rest, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _away(1 + even * d), _away(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _away(1 + odd * d), _away(1 + odd / c)
        value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return value


def _away(value: float) -> float:
    """Keep a denominator from zero."""
    return value if abs(value) > _TINY else _TINY


def two_sided_p(t: float, df: float) -> float:
    """Return the probability that Student's t is further from zero than ``t``."""
    if math.isinf(df):
        return math.erfc(abs(t) / math.sqrt(2))
    if t == 0:
        return 1.0
    square = t * t
    return _beta(1 / (1 + square / df), 1 / (1 + df / square), df / 2, 0.5)


def t_quantile(share: float, df: float) -> float:
    """Return t below which ``share`` (0 < share < 1) of Student's distribution with ``df`` lies."""
    if not 0 < share < 1 or not df > 0:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"t quantile of {share} with {df} degrees of freedom",
            "pass a share between 0 and 1, and more than 0 degrees",
        )
    if share == 0.5:
        return 0.0
    tail = min(share, 1 - share)
    if df > _EXPANSION_FROM:
        t = _expansion(-NormalDist().inv_cdf(tail), df)
    else:
        t = _solve(2 * tail, df)
    return math.copysign(t, share - 0.5)


def _expansion(z: float, df: float) -> float:
    """Return Student's quantile from the normal one. Source: Abramowitz and Stegun 26.7.5."""
    if math.isinf(df):
        return z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / df**power for power, term in enumerate(terms, 1))


def _solve(p: float, df: float) -> float:
    """Return the t that ``two_sided_p`` gives ``p`` for: bisection of its log, then Newton."""
    low, high = -60.0, 1.0
    while two_sided_p(math.exp(high), df) > p:
        low, high = high, high * 2
    while high - low > 1e-2:
        middle = (low + high) / 2
        if two_sided_p(math.exp(middle), df) > p:
            low = middle
        else:
            high = middle
    at = (low + high) / 2
    for _round in range(8):
        t = math.exp(at)
        step = (two_sided_p(t, df) - p) / (2 * t * _density(t, df))
        at += step
        if abs(step) < 1e-15:
            break
    return math.exp(at)


def _density(t: float, df: float) -> float:
    front = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return math.exp(front - (df + 1) / 2 * math.log1p(t * t / df))


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean with its t-interval; one value has none, and zero variance a width of 0."""
    checked = finite(values)
    middle = mean(checked)
    if len(checked) < 2:
        return Interval(n=1, mean=middle)
    spread = stdev(checked)
    half = t_quantile((1 + level) / 2, len(checked) - 1) * spread / math.sqrt(len(checked))
    return Interval(
        n=len(checked),
        mean=middle,
        low=middle - half,
        high=middle + half,
        cov=spread / abs(middle) if middle else None,
    )


def _satterthwaite(a: float, size_a: int, b: float, size_b: int) -> float:
    """Return the degrees of freedom of a sum of two estimated variances of means."""
    largest = max(a, b)
    if largest == 0:
        return math.inf
    share_a, share_b = a / largest, b / largest  # squares of tiny variances would underflow
    return (share_a + share_b) ** 2 / (share_a**2 / (size_a - 1) + share_b**2 / (size_b - 1))


def welch(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Welch:
    """Return Welch's test of whether the mean of ``b`` differs from that of ``a``; both need two.

    Without any variance the difference is certain: p is 0, or 1 where there is none.
    """
    first, second = finite(a, 2), finite(b, 2)
    difference = mean(second) - mean(first)
    parts = stdev(first) ** 2 / len(first), stdev(second) ** 2 / len(second)
    df = _satterthwaite(parts[0], len(first), parts[1], len(second))
    spread = math.sqrt(sum(parts))
    if spread == 0:
        t = math.copysign(math.inf, difference) if difference else 0.0
        return Welch(difference, difference, difference, t, df, 0.0 if difference else 1.0)
    half = t_quantile((1 + level) / 2, df) * spread
    t = difference / spread
    return Welch(difference, difference - half, difference + half, t, df, two_sided_p(t, df))


def ratio_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Ratio:
    """Return mean(b) / mean(a) with its interval, by the delta method on the logarithm.

    Rates and times are positive and spread by a few per cent, where this agrees with Fieller's to
    the second order. Fieller's has no degrees of freedom for unequal variances, may be unbounded,
    and a/b would not be the reciprocal of b/a; this one always is.
    """
    first, second = finite(a, 2), finite(b, 2)
    means = mean(first), mean(second)
    if min(*first, *second) <= 0:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"a ratio of {means[1]:g} to {means[0]:g} with a value of zero or below",
            "compare rates or times, which are positive",
        )
    parts = tuple(
        (stdev(values) / middle) ** 2 / len(values)
        for values, middle in zip((first, second), means, strict=True)
    )
    df = _satterthwaite(parts[0], len(first), parts[1], len(second))
    spread, ratio = math.sqrt(sum(parts)), means[1] / means[0]
    half = t_quantile((1 + level) / 2, df) * spread if spread else 0.0
    return Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half), df, spread)
