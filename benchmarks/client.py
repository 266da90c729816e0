# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Up to which chunk rate and request rate a load generator still measures TTFT truly here.

    python benchmarks/client.py [--quick] [--json] [--vllm PATH --tokenizer PATH]

--quick takes less than five minutes for both clients on a machine that does nothing else; the load
average stands beside each step.

Against our mock on loopback, which shares the cores: what is found is of the load path, not of the
client alone. Chunks: a closed loop whose streams grow. Requests: an open loop of answers of one
token, whose rate grows. A step is true if no request failed, the rate was reached, and p90 of
(TTFT - the mock's) is at most 10 ms. A step that is not is tried twice more, since what else the
machine does only makes it worse; a case ends at its second in a row that never was.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.module_utils.load import client as bench_client
from ansible_collections.apiary.instinct.plugins.module_utils.load import http as bench_http
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import command
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Target,
    Workload,
)
from rich.console import Console
from rich.table import Table

ROOT = str(Path(bench_client.__file__).parents[1])
MOCK = "load.mock"
TRUE_SECONDS = 0.010
REACHED = 0.95
TTFT, ITL = 0.5, 0.03
CHUNKS = Workload("chunks", input_tokens=200, output_tokens=60)
REQUESTS = Workload("requests", input_tokens=32, output_tokens=1)
# By client and axis; vLLM's asyncio client is true to far less, and a bound is found from below.
STEPS = {
    "builtin": {
        "chunks": (50, 100, 200, 400, 600, 800, 1000, 1300, 1600, 2000),
        "requests": (50, 100, 200, 400, 600, 885, 1200, 1600, 2000, 2500),
    },
    "vllm": {
        "chunks": (1, 2, 5, 10, 15, 20, 30, 40, 60, 100, 150),
        "requests": (1, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300),
    },
}
QUICK = {
    "builtin": {"chunks": (200, 400, 600), "requests": (200, 600, 1200)},
    "vllm": {"chunks": (5, 10, 20, 40), "requests": (20, 40, 80, 160)},
}
STEP_SECONDS = 4
# What else a machine does can only make a step worse, so the best of some counts.
TRIES = 3


@dataclass(frozen=True)
class Row:
    """One step; rates a second over all processes, errors in milliseconds.

    ``mock_p90`` is how late the mock itself sent first tokens, part of ``error_p90``; ``cpu_us`` is
    the clients' CPU time a chunk.
    """

    client: str
    processes: int
    axis: str
    step: int
    requests: float
    chunks: float
    error_p50: float
    error_p90: float
    mock_p90: float
    reached: float
    failed: int
    cpu_us: float
    load: float

    @property
    def wrong(self) -> bool:
        """Say whether this step's TTFT can't be believed."""
        return not self.true

    @property
    def true(self) -> bool:
        """Say whether this step's TTFT can be believed."""
        return not self.failed and self.reached >= REACHED and self.error_p90 <= TRUE_SECONDS * 1000


@contextmanager
def mocks(count: int) -> Iterator[list[str]]:
    """Have as many mocks, each a process; give their URLs."""
    words = [sys.executable, "-m", MOCK, "--ttft", str(TTFT), "--itl", str(ITL), "--model", "m"]
    with ExitStack() as stack:
        started = []
        for _number in range(count):
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": ROOT},
            )
            stack.callback(process.wait)
            # They end when their stdin does.
            stack.callback(process.stdin.close)
            started.append(process)
        yield [f"http://127.0.0.1:{process.stdout.readline().strip()}" for process in started]


def load_of(axis: str, step: int, processes: int) -> Load:
    """Return the load of one step: some seconds of it."""
    if axis == "chunks":
        waves = max(2, round(STEP_SECONDS / (TTFT + ITL * CHUNKS.output_tokens)))
        return Load("fixed", CHUNKS, requests=waves * step, concurrency=step, warmups=step)
    count = step * STEP_SECONDS
    return Load("fixed", REQUESTS, requests=count, request_rate=step, warmups=8 * processes)


def words_of(client: str, load: Load, target: Target, shard: int, shards: int, place: str) -> Any:
    """Return the command of one process."""
    name = f"{shard}.json"
    if client == "builtin":
        words = command.builtin_argv(load, target, shard, shards, place, name)
        return [
            word.replace("@PROGRAMS@", ROOT).replace("@PYTHON@", sys.executable) for word in words
        ]
    program = ("env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", client)
    return command.argv(load, target, shard, shards, "0.32.0", place, name, program)


def step(client: str, processes: int, axis: str, size: int, tokenizer: str | None) -> Row:
    """Measure one step."""
    load = load_of(axis, size, processes)
    with tempfile.TemporaryDirectory() as place, mocks(processes) as urls:
        target = Target(tuple(urls), "m", tokenizer=tokenizer)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = [
            subprocess.Popen(
                words_of(client, load, target, shard, processes, place),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for shard in range(processes)
        ]
        for process in running:
            said = process.communicate(timeout=300)[1]
            if process.returncode:
                raise SystemExit(
                    f"{client} ended with {process.returncode}: {said.decode()[-500:]}"
                )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        shards = [json.loads(Path(place, f"{n}.json").read_text()) for n in range(processes)]
        late = [stats_of(url)["late_p90"] or 0.0 for url in urls]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if client == "builtin":
        # Without the start of Python, which a level pays once.
        spent = sum(shard["cpu_seconds"] for shard in shards)
    return row_of((client, processes, axis, size), load, shards, max(late), spent)


def best_of(measure_step: Callable[[], Row]) -> Row:
    """Return the first true row of a step, else the one with the least error."""
    rows: list[Row] = []
    while len(rows) < TRIES and not any(row.true for row in rows):
        rows.append(measure_step())
    return min(rows, key=attrgetter("wrong", "error_p90"))


def row_of(
    case: tuple[str, int, str, int],
    load: Load,
    shards: Sequence[dict[str, Any]],
    late: float,
    spent: float,
) -> Row:
    """Return a step's figures from what its processes said."""
    client, processes, axis, size = case
    waits = [
        # Our TTFT counts from when a request was due, vLLM's from when it was sent.
        ttft + (queued if client != "builtin" else 0.0) - TTFT
        for shard in shards
        for ttft, queued, error in zip(
            shard["ttfts"], queues(shard, load), shard["errors"], strict=True
        )
        if not error
    ]
    seconds = max(shard["duration"] for shard in shards)
    chunks = sum(len(gaps) + 1 for shard in shards for gaps in shard["itls"])
    if load.request_rate:
        starts = [one for shard in shards for one in shard["start_times"]]
        seconds = max(starts) - min(starts)
        reached = load.requests / seconds / load.request_rate
    else:
        latencies = [
            ttft + sum(gaps)
            for shard in shards
            for ttft, gaps in zip(shard["ttfts"], shard["itls"], strict=True)
        ]
        reached = sum(latencies) / seconds / (load.concurrency or 1)
    spots = statistics.quantiles(waits, n=10) if len(waits) > 1 else [float("inf")] * 9
    return Row(
        "builtin" if client == "builtin" else "vllm 0.32.0",
        processes,
        axis,
        size,
        requests=load.requests / seconds,
        chunks=chunks / seconds,
        error_p50=1000 * spots[4],
        error_p90=1000 * spots[8],
        mock_p90=1000 * late,
        reached=reached,
        failed=sum(shard["failed"] for shard in shards),
        cpu_us=1e6 * spent / max(1, chunks),
        load=os.getloadavg()[0],
    )


def queues(shard: dict[str, Any], load: Load) -> list[float]:
    """Return how late each request was sent; in a closed loop waiting for a slot is no fault."""
    return shard["queue_times"] if load.request_rate else [0.0] * len(shard["ttfts"])


def stats_of(url: str) -> dict[str, Any]:
    """Return what a mock says of itself."""
    loop = bench_http.Loop()
    server = bench_http.Server(loop, url)
    try:
        return server.ask("/stats").json()
    finally:
        server.close()
        loop.close()


def measure(
    cases: Sequence[tuple[str, int]],
    steps: dict[str, dict[str, Sequence[int]]],
    tokenizer: str | None,
    until: float,
) -> Iterator[Row]:
    """Measure each client on both axes, until it measures wrong twice or time is up."""
    for client, processes in cases:
        for axis, sizes in steps["builtin" if client == "builtin" else "vllm"].items():
            wrong = 0
            for size in sizes:
                if time.monotonic() > until:
                    return
                row = best_of(partial(step, client, processes, axis, size, tokenizer))
                yield row
                wrong = 0 if row.true else wrong + 1
                if wrong == 2:
                    break


def highest(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each case the highest rate that was measured truly, 0 where none was."""
    found = []
    for case in dict.fromkeys((row.client, row.processes, row.axis) for row in rows):
        client, processes, axis = case
        own = [row for row in rows if (row.client, row.processes, row.axis) == case]
        best = max((row for row in own if row.true), key=attrgetter("step"), default=None)
        found.append(
            {
                "client": client,
                "processes": processes,
                "axis": axis,
                "highest": (best.chunks if axis == "chunks" else best.requests) if best else 0.0,
                "step": best.step if best else 0,
                "wrong": any(row.wrong for row in own),
            }
        )
    return found


def machine() -> str:
    """Return what this was measured on."""
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} × {name}, Python {platform.python_version()}, mock on the same cores"


def table(rows: Sequence[Row]) -> Table:
    """Return all steps."""
    shown = Table(title=machine())
    for name in ("client", "processes", "axis", "step", "requests/s", "chunks/s"):
        shown.add_column(name, justify="left" if name in ("client", "axis") else "right")
    for name in ("TTFT error p50 ms", "p90 ms", "the mock's p90 ms", "reached", "failed"):
        shown.add_column(name, justify="right")
    for name in ("CPU µs a chunk", "load", "true"):
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(
            *(row.client, str(row.processes), row.axis, str(row.step)),
            *(f"{row.requests:,.0f}", f"{row.chunks:,.0f}"),
            *(f"{row.error_p50:.1f}", f"{row.error_p90:.1f}", f"{row.mock_p90:.1f}"),
            *(f"{row.reached:.0%}", str(row.failed), f"{row.cpu_us:.1f}"),
            *(f"{row.load:.1f}", "yes" if row.true else "no"),
        )
    return shown


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--quick", is_flag=True, help="Fewer steps, of one process.")
@click.option("--vllm", type=click.Path(exists=True), help="The program `vllm` (0.32.0).")
@click.option("--tokenizer", help="A tokenizer's path, which `vllm bench serve` needs.")
@click.option("--only-vllm", is_flag=True, help="Leave out our own client.")
@click.option("--seconds", default=900, show_default=True, help="Begin no step after that.")
@click.option("--processes", help="Of each client, by commas; default 1,2, with --quick 1.")
def main(
    as_json: bool,
    quick: bool,
    vllm: str | None,
    tokenizer: str | None,
    only_vllm: bool,
    seconds: int,
    processes: str | None,
) -> None:
    """Find how much load can be measured truly."""
    if vllm and not tokenizer:
        raise click.UsageError("--vllm needs --tokenizer")
    counts = [int(one) for one in (processes or ("1" if quick else "1,2")).split(",")]
    clients = [*([] if only_vllm else ["builtin"]), *filter(None, [vllm])]
    cases = [(client, count) for client in clients for count in counts]
    console, rows, began = Console(width=170, stderr=as_json), list[Row](), time.monotonic()
    for row in measure(cases, QUICK if quick else STEPS, tokenizer, began + seconds):
        rows.append(row)
        spent = time.monotonic() - began
        console.print(
            f"{spent:4.0f} s  {row.client} ×{row.processes} {row.axis} {row.step}: "
            f"p90 {row.error_p90:.1f} ms"
        )
    document = {"machine": machine(), "highest": highest(rows), "rows": [asdict(r) for r in rows]}
    if as_json:
        print(json.dumps(document, indent=2))
        return
    console.print(table(rows))
    for one in document["highest"]:
        what = f"{one['client']} ×{one['processes']}"
        bound = "" if one["wrong"] else ", and no step was wrong"
        console.print(
            f"{what}: true up to {one['highest']:,.0f} {one['axis']}/s (step {one['step']}){bound}"
        )


if __name__ == "__main__":
    main()
