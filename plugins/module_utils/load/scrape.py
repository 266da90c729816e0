# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask engines over HTTP: their metrics before, during and after a level, and who they are."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import ssl
import threading
import time
from typing import Any, Callable
from urllib.parse import urlsplit

ANSWER_BYTES = 16 * 2**20
# One line of the Prometheus text format; labels are kept as text.
# name{label="value",…} number; a label's value may hold anything quoted.
_SERIES = re.compile(
    r'(?P<name>[A-Za-z_:][\w:]*)(?P<labels>\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s+(?P<value>\S+)(?:\s+-?\d+)?'
)
# How several engines or ranks of one server make one number.
JOINS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max}
Series = dict[tuple[str, str], float]


def ask(
    url: str, timeout: float, key: str = "", body: dict[str, Any] | None = None
) -> tuple[int | None, str]:
    """Return status and text of an answer; (None, why) where there is none."""
    parts = urlsplit(url)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection: http.client.HTTPConnection | None = None
    try:
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "",
                parts.port,
                timeout=timeout,
                context=ssl.create_default_context(),
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=timeout
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, sent, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as failure:
        return None, f"{type(failure).__name__}: {failure}"
    except ValueError as failure:  # a port or key that cannot be; its text may be the key
        return None, type(failure).__name__
    finally:
        if connection is not None:
            connection.close()


def metrics_text(url: str, timeout: float) -> str | None:
    """Return an engine's metrics as it prints them, or None."""
    status, text = ask(url, timeout)
    return text if status == 200 else None


def series_of(text: str) -> Series:
    """Return the number of each series by its name and labels; lines that are none are skipped."""
    series: Series = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _SERIES.fullmatch(line.strip())
        if match is None:
            continue
        with contextlib.suppress(ValueError):
            value = float(match["value"])
            if math.isfinite(value):
                series[match["name"], match["labels"] or ""] = value
    return series


def gauges(text: str, wanted: dict[str, str]) -> dict[str, float]:
    """Return the wanted gauges of a metrics page; ``wanted`` says how to join: sum or max."""
    found: dict[str, list[float]] = {}
    for (name, _labels), value in series_of(text).items():
        if name in wanted:
            found.setdefault(name, []).append(value)
    return {name: JOINS[wanted[name]](values) for name, values in found.items()}


class Sampler(threading.Thread):
    """Calls ``look`` every ``seconds`` until it is left; each result has the clock's time."""

    def __init__(self, read: Callable[[], Any], seconds: float) -> None:
        super().__init__(daemon=True)
        self.read, self.seconds = read, seconds
        self.found: list[tuple[float, Any]] = []
        self.leaving = threading.Event()

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.leaving.set()
        self.join()

    def run(self) -> None:
        while not self.leaving.is_set():
            begun = time.perf_counter()
            seen = self.read()
            if seen:
                self.found.append((begun, seen))
            self.leaving.wait(max(0.0, self.seconds - (time.perf_counter() - begun)))
