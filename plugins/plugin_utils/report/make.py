# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report of benchmarks, and what is odd about putting them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..bench.types import Bench
from ..bench.words import slo_text, workload_text
from ..findings import Finding
from ..tune.types import Tune
from .data import Configuration, Report, curves_of, gather, workloads_of
from .headline import headline_of, of_tuning


def make_report(benches: Sequence[Bench], tuning: Tune | None = None) -> Report:
    """Return the report of at least one benchmark; a tuning's own choice is its headline."""
    configurations = gather(benches)
    workloads = workloads_of(configurations)
    curves = curves_of(configurations)
    if tuning is not None:
        headline, notes = of_tuning(tuning, configurations)
    else:
        headline, notes = headline_of(configurations, workloads, curves)
    return Report(
        headline,
        configurations,
        workloads,
        curves,
        tuple(dict.fromkeys((*_odd(configurations), *notes))),
    )


def _odd(configurations: Sequence[Configuration]) -> Iterator[Finding]:
    """Yield what makes configurations hard to compare, and what has no result."""
    first = _requested(configurations[0].benches[0])
    for configuration in configurations:
        requested = _requested(configuration.benches[0])
        pairs = zip(requested, first, strict=True)
        differs = [f"{mine} instead of {other}" for mine, other in pairs if mine != other]
        if differs:
            yield Finding(
                "REPORT-DIFFERENT",
                configuration.name,
                f"was measured otherwise than {configurations[0].name}: {'; '.join(differs)}",
            )
        if not {"OK", "SLO_MISS"} & set(configuration.counts):
            yield Finding(
                "REPORT-NOTHING-VALID",
                configuration.name,
                f"none of its {sum(configuration.counts.values())} levels is valid",
            )


def _requested(bench: Bench) -> tuple[str, str, str]:
    """Return what a benchmark was of, in words."""
    requested = bench.requested
    limits, workload = slo_text(requested.slo), workload_text(requested.workload)
    return f"model {bench.target.model}", limits, workload
