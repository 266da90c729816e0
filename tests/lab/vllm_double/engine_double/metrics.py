# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counters, gauges and histograms under a vLLM version's own names, as Prometheus text."""

from __future__ import annotations

import bisect
import itertools
import os
import threading
import time
import typing

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The series of one engine; recording to a name the version does not have does nothing."""

    def __init__(self, series: list[dict[str, typing.Any]], model: str) -> None:
        self._lock = threading.Lock()
        self._series = {
            item["name"]: item
            for item in series
            if item.get("environment") is None or os.environ.get(item["environment"]) == "1"
        }
        self._values: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, tuple[list[int], float]] = {}
        self._http: dict[Labels, float] = {}
        self._info: dict[str, str] = {}
        self._started = time.time()
        for name, item in self._series.items():
            common = [("model_name", model)]
            if item.get("engine", True):
                common.insert(0, ("engine", "0"))
            item["common"] = common
            if item["type"] == "histogram":
                self._histograms[name] = ([0] * (len(item["buckets"]) + 1), 0.0)
                continue
            names, values = list(item.get("labels", {})), list(item.get("labels", {}).values())
            self._values[name] = {
                tuple(zip(names, chosen)): 0.0 for chosen in itertools.product(*values)
            }

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Raise a counter."""
        key = tuple(labels.items())
        with self._lock:
            if key in self._values.get(name, {}):
                self._values[name][key] += amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        key = tuple(labels.items())
        with self._lock:
            if key in self._values.get(name, {}):
                self._values[name][key] = value

    def observe(self, name: str, value: float) -> None:
        """Count a value in a histogram."""
        with self._lock:
            if name in self._histograms:
                counts, total = self._histograms[name]
                counts[bisect.bisect_left(self._series[name]["buckets"], value)] += 1
                self._histograms[name] = (counts, total + value)

    def request(self, handler: str, method: str, status: int) -> None:
        """Count one HTTP request under its route."""
        key = (("handler", handler), ("method", method), ("status", f"{status // 100}xx"))
        with self._lock:
            self._http[key] = self._http.get(key, 0) + 1

    def describe(self, **labels: str) -> None:
        """Set the labels of vllm:cache_config_info."""
        self._info = labels

    def text(self) -> str:
        """Return the page that Prometheus reads."""
        lines: list[str] = []
        with self._lock:
            for name, item in self._series.items():
                kind, common = item["type"], item["common"]
                shown = f"{name}_total" if kind == "counter" else name
                lines += [f"# HELP {shown} {item['help']}", f"# TYPE {shown} {kind}"]
                if kind == "histogram":
                    lines += self._histogram_lines(name, common)
                for key, value in self._values.get(name, {}).items():
                    lines.append(_sample(shown, [*common, *key], value))
            if self._info:
                lines.append("# TYPE vllm:cache_config_info gauge")
                lines.append(
                    _sample("vllm:cache_config_info", [("engine", "0"), *self._info.items()], 1)
                )
            lines.append("# TYPE http_requests_total counter")
            lines += [
                _sample("http_requests_total", key, value) for key, value in self._http.items()
            ]
        lines.append("# TYPE process_start_time_seconds gauge")
        lines.append(_sample("process_start_time_seconds", [], self._started))
        return "\n".join(lines) + "\n"

    def _histogram_lines(self, name: str, common: typing.Any) -> list[str]:
        counts, total = self._histograms[name]
        bounds = [*(str(float(bound)) for bound in self._series[name]["buckets"]), "+Inf"]
        running, lines = 0, []
        for bound, count in zip(bounds, counts):
            running += count
            lines.append(_sample(f"{name}_bucket", [*common, ("le", bound)], running))
        lines.append(_sample(f"{name}_count", common, running))
        lines.append(_sample(f"{name}_sum", common, total))
        return lines


def _sample(name: str, labels: typing.Any, value: float) -> str:
    inner = ",".join(f'{key}="{_escape(text)}"' for key, text in sorted(labels))
    return f"{name}{{{inner}}} {float(value)!r}" if inner else f"{name} {float(value)!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
