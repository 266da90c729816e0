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
    groups: dict[tuple[str, ...], list[Bench]] = {}
    for bench in benches:
        groups.setdefault(_configuration(bench), []).append(bench)
    measured = []
    for (model, layout, engine, gpu), group in groups.items():
        counted = capacity(group, 1.0, spare=0, batch=0)
        facts = (counted.per_host, counted.assumptions, counted.findings)
        measured.append(Measured(model, layout, engine, gpu, *facts))
    return tuple(measured)


def _configuration(bench: Bench) -> tuple[str, ...]:
    """Return model, layout, engine and GPU of a result."""
    facts = bench.environment
    engine = facts.get("engine")
    named = f"{engine.get('name')} {engine.get('version')}" if isinstance(engine, dict) else None
    parts = {
        "model": facts.get("model"),
        "layout": facts.get("layout"),
        "engine": named,
        "GPU": facts.get("gpu"),
    }
    for part, value in parts.items():
        if not isinstance(value, str):
            raise error(
                "FLEET-PLAN-BENCH-UNKNOWN",
                bench.name,
                f"the result does not say of which {part} it is, or hosts differed in it",
            )
    return tuple(map(str, parts.values()))
