# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/gpus.md: what is known of each GPU model, and where from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import GpuModel, gpu_models
from rules_page import table

HEAD = """# GPU models

Every fact that is specific to a model stands in one file, `knowledge/gpus/MODEL.yml` below
`plugins/plugin_utils/`, with its source. Topology checks, acceptance, alerts, host settings, the
driver's refusals and rules of recipes read it, each by the model of the GPU at hand, so that a
fleet of several models has for each its own. To change a threshold of one model, add it to
`thresholds` of its file; what an operator sets ([telemetry](telemetry.md)) holds for all models.

A dash is what no source says.
"""
UNITS = {
    "gib": "GiB",
    "gb_s": "GB/s",
    "xgmi_mb_s": "MB/s",
    "pcie_gt_s": "GT/s",
    "power_cap_watts": "W",
    "memory_tib": "TiB",
}


def page() -> str:
    """Return the page."""
    models = gpu_models().values()
    rows = [
        (
            one.name,
            one.gfx,
            ", ".join((*one.devices, *(f"{number} (guest)" for number in one.virtual_functions))),
            _shown(one.memory.gib),
            _shown(one.memory.gb_s),
            _shown(one.links.mesh),
            _shown(one.partitions.xcds),
            _shown(one.host.power_cap_watts),
        )
        for one in models
    ]
    heads = ("model", "target", "PCI ids", "GiB", "GB/s", "in a mesh", "XCDs", "cap, W")
    return "\n".join([HEAD, *table(heads, rows), *(line for one in models for line in _of(one))])


def _of(model: GpuModel) -> Iterator[str]:
    """Yield a model's facts, part by part."""
    yield f"## {model.name}\n"
    rows = []
    for item in dataclasses.fields(model):
        part = getattr(model, item.name)
        if dataclasses.is_dataclass(part) and part.source:
            facts = "; ".join(_facts(part))
            rows.append((item.name, facts, part.source))
    yield from table(("part", "facts", "source"), rows or [("–", "–", model.source)])


def _facts(part: object) -> Iterator[str]:
    for item in dataclasses.fields(part):  # type: ignore[arg-type]  # a dataclass
        value = getattr(part, item.name)
        if item.name == "source" or value in (None, 0, (), {}):
            continue
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
        elif isinstance(value, tuple):
            text = ", ".join(getattr(one, "message", None) or str(one) for one in value)
        else:
            text = f"{value} {UNITS.get(item.name, '')}".rstrip()
        yield f"`{item.name}` {text}"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else " ".join(value) if isinstance(value, tuple) else str(value)
