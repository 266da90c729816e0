# SPDX-License-Identifier: GPL-3.0-or-later

"""The statistics of repeats: t-intervals, Welch's test, ratios; Student's distribution is scipy's.

Every function takes finite numbers and raises BENCH-STATISTICS for others, or for too few.
"""

from __future__ import annotations

import importlib
import math
import statistics as plain
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...findings import ApiaryError, error
from ..types import Interval


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
    """Return the mean."""
    return plain.fmean(finite(values))


def stdev(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1) of at least two values."""
    return plain.stdev(finite(values, 2))


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


def _freedom(parts: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the degrees of freedom of a sum of estimated variances of means (Satterthwaite)."""
    whole = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return sum(parts) ** 2 / whole if whole else math.inf


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of Welch's test of whether the means differ; both need two values.

    Without any variance the difference is certain: p is 0, or 1 where there is none.
    """
    parts = [stdev(values) ** 2 / len(values) for values in (a, b)]
    difference = mean(b) - mean(a)
    if not sum(parts):
        return 0.0 if difference else 1.0
    t = difference / math.sqrt(sum(parts))
    return 2 * float(functions().stdtr(_freedom(parts, (len(a), len(b))), -abs(t)))


def ratio_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Ratio:
    """Return mean(b) / mean(a) with its interval, by the delta method on the logarithm.

    Rates and times are positive and spread by a few per cent, where this agrees with Fieller's to
    the second order. Fieller's has no degrees of freedom for unequal variances, may be unbounded,
    and a/b would not be the reciprocal of b/a; this one always is.
    """
    first, second = finite(a, 2), finite(b, 2)
    means = mean(first), mean(second)
    if min(means) <= 0 or min(*first, *second) < 0:
        raise error(
            "BENCH-STATISTICS",
            "statistics",
            f"a ratio of {means[1]:g} to {means[0]:g} with a mean of zero, or a value below",
        )
    parts = [
        (stdev(values) / middle) ** 2 / len(values)
        for values, middle in zip((first, second), means, strict=True)
    ]
    df = _freedom(parts, (len(first), len(second)))
    spread, ratio = math.sqrt(sum(parts)), means[1] / means[0]
    half = t_quantile((1 + level) / 2, df) * spread if spread else 0.0
    return Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half), df, spread)
