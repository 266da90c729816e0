# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers of a benchmark as people read them: three digits, units, what a limit says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..numbers import NONE, number, whole
from ..slo import Limit
from .types import Interval, Level, Load, Saturation, SearchResult, Workload

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}
STATUS = {"OK": "OK", "SLO_MISS": "missed SLO", "FAILED": "failed", "INVALID": "INVALID"}


def milliseconds(value: float | None) -> str:
    """Return seconds as milliseconds, without the unit."""
    return NONE if value is None else number(value * 1000)


def duration(seconds: float) -> str:
    """Return seconds with the unit that reads best: 50 ms, 2 s."""
    return f"{seconds * 1000:,.6g} ms" if seconds < 1 else f"{seconds:,.6g} s"


def between(interval: Interval | None, unit: str = "", scale: float = 1) -> str:
    """Return a mean with its interval: "12.4 (12.1 to 12.7) requests/s"."""
    if interval is None:
        return NONE
    after = f" {unit}" if unit else ""
    mean = number(interval.mean * scale)
    if interval.low is None or interval.high is None:
        return f"{mean}{after}"
    return f"{mean} ({number(interval.low * scale)} to {number(interval.high * scale)}){after}"


def limit_text(limit: Limit) -> str:
    """Return a limit of an SLO: "p90 TTFT ≤ 2 s"."""
    return f"{limit.percentile} {METRICS[limit.metric]} ≤ {duration(limit.seconds)}"


def slo_text(slo: Iterable[Limit]) -> str:
    """Return all limits of an SLO."""
    return " and ".join(map(limit_text, slo)) or "no SLO"


def load_text(load: Load) -> str:
    """Return how much a level is: "64 concurrent" or "8.2 requests/s"."""
    if load.concurrency is not None:
        return f"{load.concurrency:,} concurrent"
    return f"{number(load.request_rate)} requests/s"


def size_text(by: str, size: float | None) -> str:
    """Return a concurrency or request rate with what it is."""
    return f"{whole(size)} concurrent" if by == "concurrency" else f"{number(size)} requests/s"


def found_text(found: SearchResult) -> str:
    """Return between which loads the SLO's limit lies."""
    if found.best is None:
        return "no level kept the SLO"
    kept = size_text(found.by, found.best)
    if found.edge and found.edge.low is not None and found.edge.high is not None:
        runs = f", {found.edge.n} engine runs" if found.edge.n > 1 else ""
        kept += f" ({number(found.edge.low)} to {number(found.edge.high)}{runs})"
    kept += " of random arrivals" if found.by == "request_rate" else ""
    if found.fails is None:
        return f"{kept} and perhaps more: no level broke it"
    return f"{kept}; {size_text(found.by, found.fails)} broke it"


def level_text(level: Level) -> str:
    """Return one level in one line, with the codes of what is wrong with it."""
    load, measured = level.load, level.measured
    head = f"{load.phase}: {load.workload.name}, {load_text(load)}: {level.status}"
    codes = ", ".join(dict.fromkeys(finding.code for finding in level.findings))
    if measured is None:
        return f"{head} {codes}".rstrip()
    parts = [
        head,
        f"{number(measured.achieved_concurrency)} in flight",
        f"{number(measured.request_rate)} requests/s",
        f"{number(measured.output_token_rate)} tokens/s",
        f"TTFT p90 {milliseconds(measured.ttft.p90 if measured.ttft else None)} ms",
        f"TPOT p90 {milliseconds(measured.tpot.p90 if measured.tpot else None)} ms",
    ]
    return ", ".join(parts) + (f" ({codes})" if codes else "")


def saturation_text(one: Saturation) -> str:
    """Return where more load brought no more, and how that is known."""
    sure = "" if one.verified else " (not verified)"
    by = "request_rate" if one.concurrency is None else "concurrency"
    size = getattr(one, by)
    return one.reason if size is None else f"{size_text(by, size)}{sure}"


def workload_text(work: Workload) -> str:
    """Return what a request of a workload has."""
    parts = [f"{work.input_tokens:,} tokens in, {work.output_tokens:,} out"]
    if work.prefix_tokens:
        parts.append(f"{work.prefix_tokens:,} of them one of {work.prefixes} shared texts")
    if work.images:
        pixels = f" of {work.image_pixels[0]} × {work.image_pixels[1]}" if work.image_pixels else ""
        parts.append(f"{work.images} distinct image{'s' if work.images > 1 else ''}{pixels}")
    if work.trace:
        parts.append(f"as {len(work.trace):,} requests of a log")
    elif work.turns > 1:
        parts.append(f"{work.turns} turns a session")
    if work.parts:
        parts = ["equal shares of " + "; ".join(map(workload_text, work.parts))]
    return ", ".join(parts)


def flat(data: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return nested facts as rows of name and text, in their order."""
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{before}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += flat(value, f"{name} ")
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
            for place, one in enumerate(value):
                inner = one if isinstance(one, Mapping) else {"": one}
                rows += flat(inner, f"{name} {place} ")
        elif isinstance(value, (list, tuple)):
            rows.append((name, ", ".join(map(str, value)) or NONE))
        else:
            rows.append((name, NONE if value is None else str(value)))
    return rows
