# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Grafana dashboards that tools/dashboards/ built, with the operator's thresholds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .alerts import thresholds
from .types import TelemetrySettings

if TYPE_CHECKING:
    from .types import TelemetryPlan

SHIPPED = Path(__file__).parents[1] / "knowledge/telemetry/dashboards"
ROUTER = "apiary-router.json"
_NAMED = re.compile(r'"@(\w+)"')


def dashboards(plan: TelemetryPlan | None = None) -> dict[str, str]:
    """Return the JSON of each dashboard by file name, with the thresholds of the plan's alerts.

    A fleet without routers gets no dashboard of them; without a plan there are all.
    """
    values = thresholds(plan.settings if plan else TelemetrySettings())
    routed = plan is None or any(host.router for host in plan.hosts)
    return {
        path.name: _NAMED.sub(lambda match: json.dumps(values[match[1]]), path.read_text("utf-8"))
        for path in sorted(SHIPPED.glob("*.json"))
        if routed or path.name != ROUTER
    }
