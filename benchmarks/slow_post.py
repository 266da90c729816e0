# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What requests that never end cost the others: latency beside an attack, and without one.

    python benchmarks/slow_post.py [--json] [--connections 2100] [--rounds 4] [--without]

A real HAProxy with the default limits stands before two replicas of 1,024 requests each, which
answer after 200 ms, about what a first token takes. Another process holds the connections of the
attack, from many addresses, and opens each anew that the router closes. Quiet and attacked rounds
alternate, so that other work on the machine falls upon both, and the attack has the lowest priority
there is, for it would come from other machines. ``--without`` takes the await of
bodies out of the configuration, as a router of release 0.1.0 has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.replicas import Answer
from support.router.haproxy import HAProxy
from support.scenario import Load, serving

# An address has at most a quarter of a router's connections; no one of these comes near.
PER_ADDRESS = 100
PART = 100_000
ATTACKS = {
    "no body": ("Content-Length: 100000", b"", False),
    "a byte a second": ("Content-Length: 100000", b"x", True),
    "100 kB, then nothing": (f"Content-Length: {PART + 1}", b"x" * PART, False),
}


@dataclass(frozen=True)
class Row:
    """The others' requests in all rounds of one kind; times in milliseconds."""

    case: str
    requests: int
    failed: int
    p50: float
    p99: float
    router_cpu_percent: float
    router_mib: float


async def attack(port: int, name: str, connections: int) -> None:
    """Hold as many requests open that never end; print a line once all of them are."""
    head, part, drips = ATTACKS[name]
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + part
    opened = 0

    async def hold(number: int) -> None:
        nonlocal opened
        source = f"127.0.1.{1 + number // PER_ADDRESS}"
        first = True
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(source, 0)
                )
                writer.write(request)
                await writer.drain()
                opened += first
                first = False
                ended = asyncio.ensure_future(reader.read())
                while not ended.done():
                    await asyncio.wait([ended], timeout=1 if drips else None)
                    if drips and not ended.done():
                        writer.write(b"x")
                writer.close()

    tasks = [asyncio.create_task(hold(number)) for number in range(connections)]
    while opened < connections:
        await asyncio.sleep(0.05)  # nothing tells
    print("open", flush=True)
    await asyncio.gather(*tasks)


def worker_of(router: HAProxy) -> Path:
    [worker] = router.workers()
    return Path(f"/proc/{worker}")


def cpu_seconds(process: Path) -> float:
    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_mib(process: Path) -> float:
    return int(re.findall(r"VmRSS:\s+(\d+)", (process / "status").read_text())[0]) / 1024


async def round_of(router: HAProxy, clients: int, seconds: float) -> tuple[list[Answer], float]:
    """Return what clients got that ask without a pause, and the CPU time of the router."""
    worker = worker_of(router)
    before = cpu_seconds(worker)
    load = Load(router.port, clients, {"seconds": 0.2})
    await asyncio.sleep(seconds)
    await load.end()
    return load.answers, cpu_seconds(worker) - before


def row_of(case: str, answers: list[Answer], share: float, mib: float) -> Row:
    times = sorted(1000 * answer.seconds for answer in answers)
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    failed = sum(answer.status != 200 for answer in answers)
    return Row(case, len(times), failed, p50, p99, 100 * share, mib)


@contextlib.asynccontextmanager
async def attackers(port: int, name: str, connections: int) -> AsyncIterator[None]:
    """Have a process that attacks, once all of its connections are open."""
    command = [sys.executable, __file__, "--attack", name, "--port", str(port)]
    command += ["--connections", str(connections)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        if process.stdout:
            await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


def awaits_nothing(router: HAProxy) -> None:
    """Have the router hand requests on while they come."""
    path = router.directory / "haproxy.cfg"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not re.search("wait-for-body|bufsize", line)))


async def measure(
    name: str, connections: int, clients: int, rounds: int, seconds: float, without: bool
) -> list[Row]:
    """Return a row of the quiet rounds and one of those under attack."""
    answers: dict[str, list[Answer]] = {"quiet": [], name: []}
    cpu = dict.fromkeys(answers, 0.0)
    mib = dict.fromkeys(answers, 0.0)
    with tempfile.TemporaryDirectory(prefix="router-") as directory:
        async with serving(Path(directory), 2, 1024) as (_replicas, [router]):
            if without:
                awaits_nothing(router)
                await router.reload()
                await router.until(lambda: len(router.workers()) == 1)
            for _round in range(rounds):
                for case in answers:
                    attacked = case == name
                    around = attackers(router.port, name, connections)
                    async with around if attacked else contextlib.nullcontext():
                        got, spent = await round_of(router, clients, seconds)
                        mib[case] = max(mib[case], resident_mib(worker_of(router)))
                    answers[case] += got
                    cpu[case] += spent
                    await router.until(lambda: emptied(router))
    length = rounds * seconds
    return [row_of(case, got, cpu[case] / length, mib[case]) for case, got in answers.items()]


async def emptied(router: HAProxy) -> bool:
    rows = await router.statistics()
    return all(int(one["scur"]) < 5 for one in rows if one["pxname"] == "apiary-in-demo")


def table(rows: list[Row]) -> Table:
    """Return the measurements, each attack beside the quiet rounds around it."""
    shown = Table(title=f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.0f}")
    for name in ("case", "requests", "failed", "p50 ms", "p99 ms", "p99 beside quiet"):
        shown.add_column(name, justify="left" if name == "case" else "right")
    for name in ("router's CPU %", "router's MiB"):
        shown.add_column(name, justify="right")
    quiet = rows[0]
    for row in rows:
        quiet = row if row.case == "quiet" else quiet
        beside = "" if row is quiet else f"{100 * (row.p99 / quiet.p99 - 1):+.1f} %"
        shown.add_row(
            row.case,
            f"{row.requests:,}",
            str(row.failed),
            f"{row.p50:.1f}",
            f"{row.p99:.1f}",
            beside,
            f"{row.router_cpu_percent:.1f}",
            f"{row.router_mib:.0f}",
        )
    return shown


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--connections", default=2100, show_default=True)
@click.option("--clients", default=16, show_default=True, help="The others, at once.")
@click.option("--rounds", default=4, show_default=True, help="Quiet and attacked, each.")
@click.option("--seconds", default=8.0, show_default=True, help="Time of each round.")
@click.option("--without", is_flag=True, help="Hand requests on while they come.")
@click.option("--attack", "name", type=click.Choice(list(ATTACKS)), hidden=True)
@click.option("--port", type=int, hidden=True)
def main(
    as_json: bool,
    connections: int,
    clients: int,
    rounds: int,
    seconds: float,
    without: bool,
    name: str | None,
    port: int | None,
) -> None:
    """Measure what an attack of slow requests costs the others."""
    if name and port:
        os.nice(19)
        asyncio.run(attack(port, name, connections))
        return
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    rows = []
    for case in ATTACKS:
        rows += asyncio.run(measure(case, connections, clients, rounds, seconds, without))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        Console(width=120).print(table(rows))


if __name__ == "__main__":
    main()
