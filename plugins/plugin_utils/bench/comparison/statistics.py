# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The statistics of repeats: t-intervals, Welch's test, ratios; Student's distribution is scipy's.

Every function takes finite numbers and raises BENCH-STATISTICS for others, or for too few.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...findings import ApiaryError, error
from ..types import Interval


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
            "BENCH-STATISTICS", "statistics", f"{len(values)} values, expected at least {least}"
        )
    wrong = [value for value in values if not math.isfinite(value)]
    if wrong:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"{wrong[0]} among the values, expected finite numbers",
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
        raise error("BENCH-STATISTICS", "statistics", f"quantile {share}, expected 0 to 1")
    ordered = sorted(finite(values))
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above, part = min(below + 1, len(ordered) - 1), position - below
    low, high = ordered[below], ordered[above]
    return min(max(low * (1 - part) + high * part, low), high)


def functions() -> Any:
    """Return scipy.special; raise BENCH-EXTRA where it is not installed.

    It is imported when it is needed: what measures runs without it, and starts faster.
    """
    try:
        return importlib.import_module("scipy.special")
    except ImportError:
        raise error("BENCH-EXTRA", "scipy", "is not installed beside Apiary") from None


def t_quantile(share: float, df: float) -> float:
    """Return t below which ``share`` (0 < share < 1) of Student's distribution with ``df`` lies."""
    special = functions()
    return float(special.ndtri(share) if math.isinf(df) else special.stdtrit(df, share))


def two_sided_p(t: float, df: float) -> float:
    """Return the probability that Student's t is further from zero than ``t``."""
    return 2 * float(functions().stdtr(df, -abs(t)))


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean with its t-interval; one value has none, and zero variance a width of 0.

    Without scipy there is none either; what decides by intervals asks for it first.
    """
    checked = finite(values)
    middle = mean(checked)
    if len(checked) < 2:
        return Interval(n=1, mean=middle)
    spread = stdev(checked)
    cov = spread / abs(middle) if middle else None
    try:
        quantile_of_t = t_quantile((1 + level) / 2, len(checked) - 1)
    except ApiaryError:
        return Interval(n=len(checked), mean=middle, cov=cov)
    half = quantile_of_t * spread / math.sqrt(len(checked))
    return Interval(n=len(checked), mean=middle, low=middle - half, high=middle + half, cov=cov)


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
        )
    parts = tuple(
        (stdev(values) / middle) ** 2 / len(values)
        for values, middle in zip((first, second), means, strict=True)
    )
    df = _satterthwaite(parts[0], len(first), parts[1], len(second))
    spread, ratio = math.sqrt(sum(parts)), means[1] / means[0]
    half = t_quantile((1 + level) / 2, df) * spread if spread else 0.0
    return Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half), df, spread)
