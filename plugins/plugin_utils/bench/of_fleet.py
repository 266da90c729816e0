# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host of a fleet serves under the SLO, by configuration, from benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from ..findings import error
from ..fleet.capacity import Measured
from .capacity import capacity
from .types import Bench


def measured_of(benches: Iterable[Bench]) -> tuple[Measured, ...]:
    """Return the rate of a host of each configuration, as `apiary capacity` counts it.

    Raises its refusals, and FLEET-PLAN-BENCH-UNKNOWN where a result does not say what it is of.
    """
    found: dict[tuple[str, str, str, str], list[Bench]] = {}
    for bench in benches:
        found.setdefault(_configuration(bench), []).append(bench)
    made = []
    for (model, layout, engine, gpu), engine_runs in found.items():
        counted = capacity(engine_runs, 1.0, spare=0, batch=0)
        made.append(
            Measured(
                model,
                layout,
                engine,
                gpu,
                counted.per_host,
                counted.assumptions,
                counted.findings,
            )
        )
    return tuple(made)


def _configuration(bench: Bench) -> tuple[str, str, str, str]:
    """Return model, layout, engine and GPU of a result."""
    known = bench.environment
    engine = known.get("engine")
    named = f"{engine.get('name')} {engine.get('version')}" if isinstance(engine, dict) else None
    parts = {
        "model": known.get("model"),
        "layout": known.get("layout"),
        "engine": named,
        "GPU": known.get("gpu"),
    }
    for part, value in parts.items():
        if not isinstance(value, str):
            raise error(
                "FLEET-PLAN-BENCH-UNKNOWN",
                bench.name,
                f"the result does not say of which {part} it is, or hosts differed in it",
            )
    return (str(parts["model"]), str(parts["layout"]), str(parts["engine"]), str(parts["GPU"]))
