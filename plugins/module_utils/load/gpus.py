# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power and clock of any host's GPUs from AMD's exporter."""

from __future__ import annotations

import re

from ..evidence.sensors import Reading
from .scrape import metrics_text, series_of

LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def exported(url: str, names: dict[str, list[str]], timeout: float) -> list[Reading]:
    """Return the same from an exporter; ``names`` has its metrics by power_w, clock_mhz, key."""
    found: dict[str, Reading] = {}
    for (metric, text), value in series_of(metrics_text(url, timeout) or "").items():
        # A GPU has a clock for each of its dies: the slowest one is what counts.
        for field, join in (("power_w", max), ("clock_mhz", min)):
            # A prefix is the operator's choice.
            if metric.endswith(tuple(names[field])):
                labels = dict(LABEL.findall(text))
                key = next((labels[name] for name in names["key"] if labels.get(name)), "0")
                host = labels.get("hostname")
                gpu = f"{host}/{key}" if host else key
                reading = found.setdefault(gpu, {"key": gpu, "power_w": None, "clock_mhz": None})
                previous = reading[field]
                reading[field] = value if previous is None else join(previous, value)
    return [found[key] for key in sorted(found)]
