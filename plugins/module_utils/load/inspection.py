# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at the engines and at the load host before a benchmark; uninterpreted."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .scrape import ask, metrics_text

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
