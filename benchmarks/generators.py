#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How true load generators are: ours, aiperf and guidellm against a mock that keeps to its times.

    python benchmarks/generators.py [--aiperf VENV] [--guidellm VENV] [--tokenizer PATH] [--quick]

A generator whose environment is not named, or that does not run, is left out with a word why. The
table is that of docs/explanation/load-generators.md. Client and mock share the machine's cores.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.module_utils.load.mock import chunk
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.command import builtin_argv
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Target,
    Workload,
)
from client import ITL, ROOT, TTFT, machine, mocks
from rich.console import Console
from rich.table import Table

WORKLOAD = Workload("generators", input_tokens=200, output_tokens=60)
SERVICE = TTFT + ITL * (WORKLOAD.output_tokens - 1)
CLOSED, OPEN = (10, 100, 400, 800), (40, 200, 400)
QUICK = ((10, 100), (40,))
FAULTS = ("short", "empty", "error", "cut", "status")


@dataclass(frozen=True)
class Seen:
    """What a generator says of a load: of each good request TTFT and latency, in seconds."""

    ttfts: list[float]
    latencies: list[float]
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0

    @property
    def good(self) -> int:
        """Return how many requests it calls good."""
        return len(self.ttfts)


class Unable(Exception):  # noqa: N818 - a word for the table
    """A generator cannot send a load."""


Generator = Callable[[Load, str, Path], Seen]


def ours(load: Load, url: str, place: Path) -> Seen:
    """Send a load by the builtin client."""
    words = builtin_argv(load, Target((url,), "m"), 0, 1, str(place), "out.json")
    run([word.replace("@PROGRAMS@", ROOT).replace("@PYTHON@", sys.executable) for word in words])
    shard = json.loads((place / "out.json").read_text())
    good = [number for number, error in enumerate(shard["errors"]) if not error]
    # Both count from when a request was due; a closed loop's is due when its slot is free.
    return Seen(*([shard[name][number] for number in good] for name in ("ttfts", "latencies")))


def aiperf(program: Path, tokenizer: str) -> Generator:
    """Return what sends a load by aiperf (0.13.0)."""

    def send(load: Load, url: str, place: Path) -> Seen:
        work = load.workload
        words = ["--model", "m", "--url", url, "--endpoint-type", "completions", "--streaming"]
        words += ["--tokenizer", tokenizer, "--use-server-token-count", "--use-legacy-max-tokens"]
        words += ["--extra-inputs", "ignore_eos:true"]
        words += ["--isl", str(work.input_tokens), "--isl-stddev", "0"]
        words += ["--osl", str(work.output_tokens), "--osl-stddev", "0"]
        # Its default of 100 entries is used again: prompts would repeat.
        words += ["--request-count", str(load.requests), "--num-dataset-entries"]
        words += [str(load.requests), "--artifact-dir", str(place), "--export-level", "records"]
        words += ["--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"]
        words += ["--concurrency", str(load.concurrency)] if load.concurrency else []
        if load.request_rate:
            words += ["--request-rate", str(load.request_rate), "--arrival-pattern", "poisson"]
        result = place / "profile_export.jsonl"
        run([str(program), "profile", *words], result)
        lines = result.read_text().splitlines()
        records = [json.loads(line) for line in lines]
        good = [one["metrics"] for one in records if not one.get("error")]
        good = [one for one in good if "time_to_first_token" in one]
        return Seen(
            [one["time_to_first_token"]["value"] / 1e3 for one in good],
            [one["request_latency"]["value"] / 1e3 for one in good],
        )

    return send


def guidellm(program: Path, tokenizer: str) -> Generator:
    """Return what sends a load by guidellm (0.8.1)."""

    def send(load: Load, url: str, place: Path) -> Seen:
        work = load.workload
        profile = f"kind=concurrent,streams={load.concurrency}"
        if load.request_rate:
            profile = f"kind=poisson,rate={load.request_rate}"
            profile += f",max_concurrency={load.concurrency}" if load.concurrency else ""
        lengths = f"prompt_tokens={work.input_tokens},output_tokens={work.output_tokens}"
        backend = f"kind=openai_http,target={url},model=m,request_format=/v1/completions"
        words = ["--backend", backend, "--profile", profile, "--disable-console"]
        words += ["--data", f"kind=synthetic_text,{lengths}"]
        words += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
        words += ["--constraint", f"kind=max_requests,count={load.requests}"]
        words += ["--output", f"kind=json,path={place / 'out.json'}"]
        run([str(program), "run", *words])
        (benchmark,) = json.loads((place / "out.json").read_text())["benchmarks"]
        good = benchmark["requests"]["successful"]
        return Seen(
            [one["time_to_first_token_ms"] / 1e3 for one in good],
            [one["request_latency"] for one in good],
        )

    return send


def run(argv: Sequence[str], result: Path | None = None) -> None:
    """Run a program to its end; raise Unable with its last words where it fails.

    One that ends with an error because requests failed has written its ``result`` all the same.
    """
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=900, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Unable(str(failure)) from None
    if done.returncode and not (result is not None and result.is_file()):
        words = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise Unable(f"exit {done.returncode}: {words[-1][:200]}")


def measured(send: Generator, load: Load, url: str) -> Seen:
    """Send a load; its CPU time and the largest process are those of all below this one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as name:
        seen = send(load, url, Path(name))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seen(seen.ttfts, seen.latencies, spent, after.ru_maxrss / 1024)


def load_of(streams: int | None = None, rate: float | None = None, requests: int = 0) -> Load:
    """Return a load of two waves, or of four seconds."""
    count = requests or (2 * streams if streams else int(4 * (rate or 0)))
    return Load("fixed", WORKLOAD, requests=count, concurrency=streams, request_rate=rate)


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile; infinite where there is too little."""
    return statistics.quantiles(values, n=10)[8] if len(values) > 1 else float("inf")


def true_wait(rate: float, slots: int, requests: int) -> float:
    """Return p90 of the latency from the due time of evenly arriving requests through slots."""
    free, waits = [0.0] * slots, []
    for number in range(requests):
        due = number / rate
        end = max(heapq.heappop(free), due) + SERVICE
        heapq.heappush(free, end)
        waits.append(end - due)
    return p90(waits)


class Faulty(BaseHTTPRequestHandler):
    """Answers every second request wrongly, in five ways by turns."""

    numbers = itertools.count()

    def do_GET(self) -> None:
        """List the model."""
        self._send(200, json.dumps({"object": "list", "data": [{"id": "m"}]}), "application/json")

    def do_POST(self) -> None:
        """Answer with a stream that is whole or not."""
        requested = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "max_tokens" not in requested:  # /tokenize
            self._send(404, "{}", "application/json")
            return
        number, count = next(Faulty.numbers), int(requested["max_tokens"])
        fault = FAULTS[number // 2 % len(FAULTS)] if number % 2 else ""
        if fault == "status":
            self._send(500, '{"error": {"message": "no"}}', "application/json")
            return
        tokens = {"short": count // 2, "empty": 0, "error": 3, "cut": count // 2}.get(fault, count)
        events = [chunk(False, "m", choices=[{"index": 0, "text": " word"}])] * tokens
        if fault == "error":
            events.append('{"error":{"message":"the engine died","code":500}}')
        if fault not in ("error", "cut"):
            usage = {"prompt_tokens": 200, "completion_tokens": tokens}
            events += [chunk(False, "m", choices=[], usage=usage), "[DONE]"]
        self._send(200, "".join(f"data: {one}\n\n" for one in events), "text/event-stream")

    def _send(self, status: int, text: str, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_words: Any) -> None:
        """Log nothing."""


@contextmanager
def faulty() -> Iterator[str]:
    """Have the faulty server; give its URL."""
    Faulty.numbers = itertools.count()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rows(send: Generator, quick: bool) -> Iterator[tuple[str, str]]:
    """Yield each row of the table with what a generator comes to, or why it does not."""
    closed, opened = QUICK if quick else (CLOSED, OPEN)

    def cell(text: Callable[[Seen], str], load: Load, server: Any = None) -> str:
        try:
            with server or mocks(1) as urls:
                return text(measured(send, load, urls if server else urls[0]))
        except Unable as failure:
            return f"– ({failure})"

    def cost(seen: Seen) -> str:
        return f"{wrong(seen)}; {seen.cpu_seconds:.1f} s, {seen.memory_mb:.0f} MB"

    for streams in closed:
        row = f"closed, {streams} streams: error of p90 TTFT, ms; CPU, largest process"
        yield row, cell(cost, load_of(streams=streams))
    for rate in opened:
        row = f"open, {rate} requests/s: error of p90 TTFT, ms"
        yield row, cell(wrong, load_of(rate=rate))
    faults = load_of(streams=1, requests=100)
    row = "of 100 requests with 50 faults called good"
    yield row, cell(lambda seen: str(seen.good), faults, faulty())
    queued = Load("fixed", WORKLOAD, requests=40, concurrency=10, request_rate=40.0)
    row = f"40/s through 10 slots: p90 latency (true {true_wait(40.0, 10, 40):.1f} s)"
    yield row, cell(lambda seen: f"{p90(seen.latencies):.1f} s", queued)


def wrong(seen: Seen) -> str:
    """Return how far a generator's p90 TTFT is from the mock's."""
    return f"{1000 * abs(p90(seen.ttfts) - TTFT):.1f}"


@click.command()
@click.option("--aiperf", "aiperf_venv", type=click.Path(file_okay=False), help="Its environment.")
@click.option("--guidellm", "guidellm_venv", type=click.Path(file_okay=False), help="Likewise.")
@click.option("--tokenizer", help="A tokenizer's path, which both of them need.")
@click.option("--quick", is_flag=True, help="Fewer loads.")
def main(
    aiperf_venv: str | None, guidellm_venv: str | None, tokenizer: str | None, quick: bool
) -> None:
    """Compare load generators."""
    console = Console(width=150)
    found: dict[str, Generator] = {"ours": ours}
    others = {"aiperf": (aiperf_venv, aiperf), "guidellm": (guidellm_venv, guidellm)}
    for name, (venv, maker) in others.items():
        program = Path(venv or "", "bin", name)
        if venv is None:
            console.print(f"{name}: left out, no environment is named (--{name} VENV)")
        elif not program.is_file():
            console.print(f"{name}: left out, there is no {program}")
        elif not tokenizer:
            console.print(f"{name}: left out, it needs --tokenizer")
        else:
            found[name] = maker(program, tokenizer)
    cells: dict[str, dict[str, str]] = {}
    for name, send in found.items():
        for row, cell in rows(send, quick):
            cells.setdefault(row, {})[name] = cell
            console.print(f"{name}: {row}: {cell}")
    table = Table("", *found, title=machine())
    for row, values in cells.items():
        table.add_row(row, *(values.get(name, "–") for name in found))
    console.print(table)


if __name__ == "__main__":
    main()
