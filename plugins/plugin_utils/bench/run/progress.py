# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A benchmark's progress in lines for a person."""

from __future__ import annotations

from ..types import Level, Load, SearchResult, Spread
from .drive import Progress


def size(load: Load) -> str:
    """Return how much a load is: streams, or requests per second."""
    if load.concurrency is not None:
        return f"{load.concurrency} concurrent"
    return f"{load.request_rate or 0:.3g} requests/s"


def words(progress: Progress) -> str:
    """Return one line of what begins, or of what has just been measured."""
    if progress.level is None:
        load = progress.load
        return f"{load.phase}: {load.workload.name}, {size(load)}, {load.requests} requests"
    again = " (measured before)" if progress.replayed else ""
    return told(progress.level) + again


def told(level: Level) -> str:
    """Return one level in one line, with the codes of what is wrong with it."""
    head = f"{level.load.phase}: {level.load.workload.name}, {size(level.load)}: {level.status}"
    codes = ", ".join(dict.fromkeys(one.code for one in level.findings))
    measured = level.measured
    if measured is None:
        return f"{head} {codes}".rstrip()
    parts = [
        f"{measured.achieved_concurrency:.1f} in flight",
        f"{measured.request_rate:.3g} requests/s",
        f"{measured.output_token_rate:.4g} tokens/s",
        f"TTFT p90 {milliseconds(measured.ttft)}",
        f"TPOT p90 {milliseconds(measured.tpot)}",
    ]
    return f"{head}, {', '.join(parts)}" + (f" ({codes})" if codes else "")


def found_words(found: SearchResult) -> str:
    """Return what an SLO search found in one line, with how sure it is."""
    streams = found.by == "concurrency"
    what = f"SLO by {'requests in flight' if streams else 'random arrivals'}: {found.workload}"
    if found.best is None:
        return f"{what}: no level kept the limits"
    unit = "" if streams else " requests/s"
    parts = [f"{found.best:g}{unit} kept the limits"]
    if found.edge and found.edge.low is not None and found.edge.high is not None:
        parts[0] += f" ({found.edge.low:.3g} to {found.edge.high:.3g})"
    parts.append("none broke them" if found.fails is None else f"{found.fails:g}{unit} did not")
    rate = found.request_rate
    if rate is not None:
        ends = "" if rate.low is None else f" ({rate.low:.3g} to {rate.high:.3g})"
        parts.append(f"{rate.mean:.3g}{ends} requests/s served")
    return f"{what}: {', '.join(parts)}"


def milliseconds(spread: Spread | None) -> str:
    """Return a metric's p90."""
    return "unknown" if spread is None else f"{spread.p90 * 1000:.4g} ms"
