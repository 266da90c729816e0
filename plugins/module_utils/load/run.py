# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one level of a benchmark on the load host: the document `apiary.bench-raw/v1`.

A request is what plugin_utils/bench/run/level.py makes of a Load. It decides everything; here are
only processes, clocks and files. In every word of an argv `@DIR@` is this level's own temporary
directory, `@NAME@` its name, that no other level has, `@PYTHON@` this interpreter, `@PROGRAMS@`
where it finds our own client, and `@MOCK@` the mock server of that process's self-test.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ..evidence.gpu import cards, readings

# So that they are in Ansible's archive.
from . import client as _client  # noqa: F401  # pylint: disable=unused-import
from . import mock as _mock  # noqa: F401  # pylint: disable=unused-import
from .processes import Children, cpu_seconds, cpu_within
from .scrape import Sampler, ask, exported, gauges, inspect_engines, metrics_text

SCHEMA = "apiary.bench-raw/v1"
# A directory, or Ansible's archive of this module; `python -m load.client` reads either.
PROGRAMS = str(Path(__file__).parents[1])
MOCK_SECONDS = 30.0
RESULT_BYTES = 2**30
# What a level's answer may be on the controller, which unpacks it.
MOST_UNPACKED = 2**28
_GZIP = 16 + zlib.MAX_WBITS
# Megabytes of random words that nothing reads.
DROPPED = ("generated_texts",)


class BenchError(Exception):
    """What kept this host from running a level at all, in words for a person."""


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Look at the engines (``do: inspect``) or run one level of load; return what was seen.

    Raises BenchError. Whatever happens, no process and no file is left.
    """
    with interruptible(), tempfile.TemporaryDirectory(prefix="apiary-bench-") as name:
        directory = Path(name)
        if "authority" in request:
            # Beside what the host trusts by itself, which is in a directory (openssl-env(7)).
            os.environ["SSL_CERT_FILE"] = str(directory / "authority.pem")
            (directory / "authority.pem").write_text(request["authority"], encoding="ascii")
        if request["do"] == "inspect":
            return inspect_engines({**request, "client": words_of(request["client"], directory)})
        tested, reported = self_test(request, directory) if request["self_test"] else (None, "")
        measured = level(request, directory)
        return {**measured, "self_test": tested, "log": measured["log"] + reported}


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end a level as SIGINT does, so that nothing of it is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def level(request: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Run the shards together, while engines and GPUs are watched."""
    secrets, timeout = request["secrets"], request["http_seconds"]
    urls = request["metrics"]
    known = cards() if request["gpus"] == "sysfs" else []
    before = {url: metrics_text(url, timeout) for url in urls}
    spent, begun = cpu_seconds(), time.perf_counter()
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with contextlib.ExitStack() as stack:
        samplers = {
            url: stack.enter_context(
                Sampler(partial(gauges_of, url, request["gauges"], timeout), request["sample"])
            )
            for url in urls
        }
        watch = partial(readings, known)
        if request["gpus"] not in ("sysfs", "none"):
            watch = partial(exported, request["gpus"], request["exporter"], timeout)
        gpus = Sampler(watch, request["sample"])
        if known or request["gpus"] != "none":
            stack.enter_context(gpus)
        environment = {**request["environment"], **secrets}
        children = stack.enter_context(Children(directory, environment, request["cpus"]))
        argvs = [words_of(shard["argv"], directory) for shard in request["shards"]]
        for number, (shard, argv) in enumerate(zip(request["shards"], argvs)):
            children.start(f"shard-{number}", argv, words_of(shard.get("after", []), directory))
        used = stack.enter_context(Sampler(children.cpu_seconds, request["sample"]))
        in_time = children.wait(request["timeout_seconds"])
        ended = time.perf_counter()
        children.end()
    spent_until = [(begun, 0.0), *used.found, (ended, cpu_seconds() - spent)]
    log = children.words(list(secrets.values()))
    if not in_time:
        log += f"\n== ended: not done within {request['timeout_seconds']:g} s =="
    shards = [result_of(directory / shard["result"]) for shard in request["shards"]]
    window = window_of(shards, begun, ended)
    return {
        "schema": SCHEMA,
        "load": request["load"],
        "backend": request["backend"],
        "version": request["version"],
        "argv": [list(shard["argv"]) for shard in request["shards"]],
        "shards": shards,
        "started": started,
        "seconds": ended - begun,
        "exit_codes": children.exit_codes(),
        "log": log,
        "metrics": [
            {
                "url": url,
                "before": before[url],
                "after": metrics_text(url, timeout),
                "samples": [[at, seen] for at, seen in within(samplers[url].found, window)],
            }
            for url in urls
        ],
        "gpus": [{"seconds": at, **one} for at, seen in within(gpus.found, window) for one in seen],
        # What a container's processes cost is nobody's child's time.
        "cpu_seconds": None if request["contained"] else cpu_within(spent_until, window),
        "cores": len(request["cpus"] or os.sched_getaffinity(0)),
    }


def self_test(request: dict[str, Any], directory: Path) -> tuple[dict[str, Any], str]:
    """Run the same client against mocks that keep to the times they are given, one a shard.

    Returns the result, and how late the mocks themselves were, in words.
    """
    requested, secrets = request["self_test"], request["secrets"]
    environment = {**request["environment"], **secrets}
    with Children(directory, {"PYTHONPATH": PROGRAMS}) as mocks:
        urls = [
            start_mock(mocks, number, requested["mock"])
            for number in range(len(requested["shards"]))
        ]
        with Children(directory, environment, request["cpus"]) as children:
            for number, (shard, url) in enumerate(zip(requested["shards"], urls)):
                children.start(
                    f"test-{number}",
                    words_of(shard["argv"], directory, url),
                    words_of(shard.get("after", []), directory),
                )
            children.wait(requested["timeout_seconds"])
            children.end()
        late = [ask(f"{url}/stats", request["http_seconds"])[1] for url in urls]
    tested = {
        "ttft_seconds": requested["ttft_seconds"],
        "itl_seconds": requested["itl_seconds"],
        "shards": [result_of(directory / shard["result"]) for shard in requested["shards"]],
        "exit_codes": children.exit_codes(),
    }
    reported = "".join(f"\n== mock {number} ==\n{log}" for number, log in enumerate(late))
    failed = children.words(list(secrets.values())) if any(tested["exit_codes"]) else ""
    return tested, reported + (f"\n{failed}" if failed else "")


def start_mock(mocks: Children, number: int, arguments: list[str]) -> str:
    """Start a mock server; return its URL, whose port it tells on its first line."""
    argv = [sys.executable, "-m", "load.mock", "--port", "0", *arguments]
    process = mocks.start(f"mock-{number}", argv, pipe=True)
    # Whoever tells nothing is ended, and so is the wait for its line.
    watchdog = threading.Timer(MOCK_SECONDS, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline() if process.stdout else b""
    finally:
        watchdog.cancel()
        watchdog.join()
    try:
        return f"http://127.0.0.1:{int(line.split()[-1])}"
    except (ValueError, IndexError):
        mocks.end()
        raise BenchError(f"the self-test's mock did not start: {mocks.words([])}") from None


def gauges_of(url: str, wanted: dict[str, str], timeout: float) -> dict[str, float]:
    """Return the wanted gauges of one engine now; none where it does not answer."""
    return gauges(metrics_text(url, timeout) or "", wanted)


def words_of(argv: list[str], directory: Path, mock: str = "") -> list[str]:
    """Fill in what only this host knows."""
    known = {
        "@DIR@": str(directory),
        "@NAME@": directory.name,
        "@PYTHON@": sys.executable,
        "@PROGRAMS@": PROGRAMS,
        "@MOCK@": mock,
    }
    filled = []
    for word in argv:
        for name, value in known.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


def result_of(path: Path) -> dict[str, Any]:
    """Return a shard's result; empty where it wrote none."""
    try:
        if path.stat().st_size > RESULT_BYTES:
            return {}
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {name: finite(value) for name, value in data.items() if name not in DROPPED}


def finite(value: Any) -> Any:
    """Return a value that JSON can say: an infinite request rate is text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def window_of(shards: list[dict[str, Any]], begun: float, ended: float) -> tuple[float, float]:
    """Return when the measured requests began and ended, on this host's monotonic clock.

    A client's start alone takes a while. Its own start times are on the same clock
    (time.perf_counter, vllm/benchmarks/serve.py); without them its duration before the end is it.
    """
    starts, ends = [], []
    for shard in shards:
        times = [at for at in shard.get("start_times") or [] if isinstance(at, (int, float))]
        duration = shard.get("duration")
        if not isinstance(duration, (int, float)):
            continue
        first = min(times) if times else ended - duration
        if begun <= first <= ended:
            starts.append(first)
            ends.append(first + duration)
    return (min(starts), max(ends)) if starts else (begun, ended)


def within(
    found: list[tuple[float, Any]], window: tuple[float, float]
) -> Iterator[tuple[float, Any]]:
    """Yield what was seen in the window, by seconds since it began."""
    first, last = window
    return ((at - first, seen) for at, seen in found if first <= at <= last)


def packed(document: dict[str, Any]) -> str:
    """Return a document as one small word: a level has a number for every token."""
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 5)).decode("ascii")


def unpacked(word: str) -> Any:
    """Return what was packed; raise BenchError where it is nothing that a level measures."""
    try:
        unpacking = zlib.decompressobj(_GZIP)
        text = unpacking.decompress(base64.b64decode(word), MOST_UNPACKED)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ValueError(f"it is cut, or has over {MOST_UNPACKED >> 20} MiB")
        return json.loads(text)
    except (ValueError, TypeError, RecursionError, zlib.error) as failure:
        raise BenchError(f"it answered with what is no measurement: {failure}") from failure
