# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that sends a router's spans, as a process beside a router of a test."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.render import router_traces
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import Router

from support.haproxy import HAProxy


@contextlib.contextmanager
def exporting(
    router: HAProxy, headers: dict[str, str] | None = None, **changes: object
) -> Iterator[Path]:
    """Run the program on the router's lines; gives the directory that it writes counters to.

    ``changes`` are of the limits that it is told.
    """
    assert router.settings.tracing is not None
    place = router.directory / "exporter"
    place.mkdir()
    (place / "traces.py").write_text(router_traces.program())
    told = json.loads(router_traces.document(Router(router.settings, router.pools)))
    quick = {"delay_seconds": 0.1, "counters_seconds": 0.1}
    (place / "traces.json").write_text(json.dumps({**told, **quick, **changes}))
    (place / "headers").write_text(json.dumps(headers or {}))
    process = subprocess.Popen(
        [
            *(sys.executable, "-I", "-B", place / "traces.py", place / "traces.json"),
            str(router.settings.tracing.port),
        ],
        env={**os.environ, "CREDENTIALS_DIRECTORY": str(place), "RUNTIME_DIRECTORY": str(place)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # It writes its counters once it listens.
        until((place / router_traces.COUNTERS).exists)
        yield place
    finally:
        process.terminate()
        _out, told_err = process.communicate(timeout=20)
        (place / "said").write_text(told_err)
    assert process.returncode == 0, told_err


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def counters(place: Path) -> dict[str, float]:
    """Return the counters by name and labels, as the program last wrote them."""
    path = place / router_traces.COUNTERS
    if not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
