# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask engines over HTTP, who they are and for their metrics; ask AMD's exporter for the GPUs'.

Before a benchmark: look at the engines and at the load host; uninterpreted.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable
from urllib.parse import urlsplit

from ..evidence.gpu import Reading
from .http import Loop, Server

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
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    loop = Loop()
    try:
        parts = urlsplit(url)
        server = Server(loop, f"{parts.scheme}://{parts.netloc}")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        answer = server.ask(path, body, headers, timeout)
        server.close()
    except OSError as failure:
        return None, f"{type(failure).__name__}: {failure}"
    except ValueError as failure:  # a port or key that cannot be; its text may be the key
        return None, type(failure).__name__
    finally:
        loop.close()
    if not answer.status or (answer.status == 200 and answer.error):
        return None, answer.error
    return answer.status, answer.body.decode("utf-8", "replace")


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


LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def exported(url: str, names: dict[str, list[str]], timeout: float) -> list[Reading]:
    """Return the same of exporters (URLs by commas); ``names`` has metrics by what is read."""
    found: dict[str, Reading] = {}
    pages = "\n".join(metrics_text(one, timeout) or "" for one in url.split(","))
    for (metric, text), value in series_of(pages).items():
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


TOOL_SECONDS = 180.0
ANSWER_CHARACTERS = 2000


def inspect_engines(request: dict[str, Any]) -> dict[str, Any]:
    """Return what servers, metrics, client and host say of themselves.

    Asks for `/v1/models` and `/version` of each of ``urls``, one completion of ``model`` (else of
    the first that is served) and for the first words of each of ``metrics``.
    """
    key, timeout = request["secrets"].get("OPENAI_API_KEY", ""), request["http_seconds"]
    servers = []
    for url in request["urls"]:
        base = url.rstrip("/")
        models = ask(f"{base}/v1/models", timeout, key)
        version = ask(f"{base}/version", timeout, key)
        model = request["model"] or _first_model(models[1])
        body = {"model": model, "prompt": "One, two,", "max_tokens": 4, "temperature": 0}
        completion = ask(f"{base}/v1/completions", request["answer_seconds"], key, body)
        servers.append(
            {
                "url": url,
                "model": model,
                "models": list(models),
                "version": [version[0], version[1][:ANSWER_CHARACTERS]],
                "completion": [completion[0], completion[1][:ANSWER_CHARACTERS]],
            }
        )
    return {
        "servers": servers,
        "metrics": {url: bool(metrics_text(url, timeout)) for url in request["metrics"]},
        "client": _reported(request["client"]),
        "host": host(),
    }


def host() -> dict[str, Any]:
    """Return what of this host decides how well it measures."""
    nodes = {
        Path(path).parent.name[len("node") :]: _read(path)
        for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*/cpulist"))
    }
    return {
        "name": platform.node().split(".")[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "numa_balancing": _read("/proc/sys/kernel/numa_balancing"),
        "numa_cpus": nodes,
    }


def _first_model(text: str) -> str:
    """Return the first `"id"` of a list of models, without judging the rest."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        return str(json.loads(text)["data"][0]["id"])
    return ""


def _reported(argv: list[str]) -> dict[str, Any] | None:
    """Return what the load generator says of its version; None where none is asked."""
    if not argv:
        return None
    if not shutil.which(argv[0]):
        return {"exit": None, "text": f"{argv[0]}: not found"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=TOOL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return {"exit": None, "text": str(failure)}
    text = done.stdout.decode("utf-8", "replace")
    return {"exit": done.returncode, "text": text[-ANSWER_CHARACTERS:]}


def _read(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8").strip()
    return None
