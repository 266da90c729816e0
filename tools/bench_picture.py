# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/images/bench.png: a report of three simulated layouts, as a browser shows it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Requested,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import slo
from browser.chromium import browser

from apiary.bench.report.page import page
from engine_simulator import benches, parameters

LAYOUTS = {"tp4x2": "DP2/TP4", "tp8x1": "DP1/TP8", "tp2x4": "DP4/TP2"}
WIDTH, HEIGHT = 1280, 1405


def simulated() -> Iterator[Bench]:
    """Yield a whole benchmark of each layout, with three restarts."""
    for name, layout in LAYOUTS.items():
        print(f"simulating {layout}", file=sys.stderr)
        requested = Requested(
            workload("5600/140"),
            slo("ttft:p90:2.5s,tpot:p90:60ms"),
            phases=("baseline", "scaling", "slo", "saturation", "open"),
            most=256,
            engine_runs=3,
        )
        yield benches.bench(
            parameters(f"qwen3-235b-{name}"),
            requested,
            seed=1,
            environment={
                "layout": layout,
                "gpu": "8 × MI325X, simulated",
                "engine": {"name": "simulator", "version": f"qwen3-235b-{name}"},
            },
        )


def draw(to: Path) -> None:
    """Make the report and photograph its top."""
    report = make_report(tuple(simulated()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page(report), encoding="utf-8")
        profile = Path(folder) / "profile"
        profile.mkdir()
        with browser(profile) as chromium:
            chromium.view(WIDTH, HEIGHT)
            chromium.open(file)
            chromium.settle()
            chromium.screenshot(to, (0, 0, WIDTH, HEIGHT))
