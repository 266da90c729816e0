# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a router costs: latency beside direct, and requests a second of one core.

    python benchmarks/router.py [--json] [--seconds 3] [--replicas 8]

The router has one thread on one core; the replicas (an HAProxy that answers at once) and the
client (wrk, of the distribution) share another. Saturation is counted in the router's own CPU time,
so that the client's core does not bound it. Everything is on loopback.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    ApiKey,
    RouterSettings,
)
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.router.haproxy import HAProxy, free_ports, pool_of

ROUTER_CORE, OTHER_CORE = "0", "1"
BODIES = (200, 16_384, 262_144)
CLIENTS = (1, 64)
_NOOP = """global
    maxconn 2000
    nbthread 1
    tune.bufsize 300000
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 5s
    option httpclose
"""
# The digest of an empty key: only its look-up shall cost.
_KEY = "benchmark-key-0123456789"
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True)
class Row:
    """One measurement; latencies in milliseconds, ``cpu_us`` the router's CPU time a request."""

    case: str
    clients: int
    body: int
    per_second: float
    p50: float
    p99: float
    failed: int
    cpu_us: float | None = None

    @property
    def per_core(self) -> float | None:
        """Return how many requests a second one core can do."""
        return 1e6 / self.cpu_us if self.cpu_us else None


@contextmanager
def replicas(place: Path, count: int) -> Iterator[list[int]]:
    """Have as many ports that answer 200 as soon as they have read the body."""
    ports = free_ports(count)
    text = _NOOP + "".join(
        f"frontend f{port}\n    bind 127.0.0.1:{port}\n"
        "    http-request wait-for-body time 10s\n"
        "    http-request return status 200 content-type application/json string {}\n"
        for port in ports
    )
    (place / "noop.cfg").write_text(text)
    command = ["taskset", "-c", OTHER_CORE, "haproxy", "-db", "-f", str(place / "noop.cfg")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not listens(ports[-1]):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the stand-in replicas did not start: {' '.join(command)}")
            time.sleep(0.05)  # nothing tells when a port is open
        yield ports
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listens(port: int) -> bool:
    """Say whether somebody takes connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def printed(pattern: str, said: str) -> re.Match[str]:
    """Find what wrk must have printed; a figure that is missing is no zero."""
    found = re.search(pattern, said, re.MULTILINE)
    if found is None:
        raise SystemExit(f"wrk printed no {pattern}; it said:\n{said}")
    return found


def milliseconds(text: str) -> float:
    """Return a time as wrk prints it."""
    found = printed(r"^([\d.]+)([a-z]+)$", text)
    return float(found[1]) * _UNITS[found[2]]


def chat(size: int) -> str:
    """Return a chat of about so many bytes: turns of code, which has many quotes to escape."""
    turn = 'if name == "main":\n    print("it says \\"yes\\"", sys.argv[1:])\n' * 12
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    while len(json.dumps(messages)) < size:
        role = "user" if messages[-1]["role"] == "assistant" else "assistant"
        room = size - len(json.dumps(messages))
        messages.append({"role": role, "content": turn[:room]})
    return json.dumps({"model": "org/model", "messages": messages, "stream": True})


def load(
    place: Path,
    case: str,
    port: int,
    clients: int,
    body: int,
    seconds: int,
    headers: dict[str, str],
) -> Row:
    """Ask by wrk for some seconds, each request on a connection of its own as the router has it."""
    script, asked = place / "ask.lua", place / "body.json"
    asked.write_text(chat(body))
    lines = [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = io.open("{asked}"):read("*a")\n' + "\n".join(lines)
    )
    command = ["taskset", "-c", OTHER_CORE, "wrk", "-t", "1", "-c", str(clients)]
    command += ["-d", str(seconds), "--latency", "-s", str(script)]
    command.append(f"http://127.0.0.1:{port}/v1/chat/completions")
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    p50, p99 = (milliseconds(printed(rf"^\s+{name}%\s+(\S+)", said)[1]) for name in ("50", "99"))
    rate = float(printed(r"Requests/sec:\s+([\d.]+)", said)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    return Row(case, clients, body, rate, p50, p99, int(bad[1]) if bad else 0)


def requests_of(row: Row, seconds: int) -> float:
    return row.per_second * seconds


async def measure(count: int, seconds: int) -> list[Row]:
    """Return a row for each case, number of clients and size of body."""
    digest = hashlib.sha256(_KEY.encode()).hexdigest()
    plain = RouterSettings(threads=1)
    headers_only = replace(plain, affinity=Affinity(keys=("header:X-Session-Id",)))
    cases = {
        "no session": (headers_only, {}),
        "session, header": (plain, {"X-Session-Id": "benchmark"}),
        "session, header, API key": (
            replace(plain, keys=(ApiKey("benchmark", digest, 100_000_000),)),
            {"X-Session-Id": "benchmark", "Authorization": f"Bearer {_KEY}"},
        ),
        "session, prompt": (plain, {}),
    }
    rows = []
    with tempfile.TemporaryDirectory(prefix="router-") as directory:
        place = Path(directory)
        with replicas(place, count) as ports:
            for body in BODIES:
                for clients in CLIENTS:
                    rows.append(load(place, "direct", ports[0], clients, body, seconds, {}))
            for number, (case, (settings, headers)) in enumerate(cases.items()):
                router = HAProxy(place / f"r{number}", [pool_of(ports)], settings)
                async with router:
                    [worker] = router.workers()
                    subprocess.run(
                        ["taskset", "-a", "-c", "-p", ROUTER_CORE, str(worker)],
                        capture_output=True,
                        check=True,
                    )
                    for body in BODIES:
                        for clients in CLIENTS:
                            before = cpu_seconds(worker)
                            row = load(place, case, router.port, clients, body, seconds, headers)
                            spent = cpu_seconds(worker) - before
                            rows.append(
                                replace(row, cpu_us=1e6 * spent / requests_of(row, seconds))
                            )
    return rows


def machine() -> str:
    """Return what this was measured on."""
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    said = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True).stdout
    version = said.split()[2]
    return f"{os.cpu_count()} × {names[0] if names else platform.machine()}, HAProxy {version}"


def table(rows: list[Row]) -> Table:
    """Return the measurements with what the router adds to direct."""
    direct = {(row.clients, row.body): row for row in rows if row.case == "direct"}
    shown = Table(title=machine())
    names = ("case", "clients", "body", "requests/s", "p50 ms", "p99 ms", "added p50", "added p99")
    for name in (*names, "CPU µs", "requests/s of a core", "failed"):
        shown.add_column(name, justify="left" if name == "case" else "right")
    for row in rows:
        base = direct[row.clients, row.body]
        core = "" if row.per_core is None else f"{row.per_core:,.0f}"
        added = [row.p50 - base.p50, row.p99 - base.p99]
        shown.add_row(
            row.case,
            str(row.clients),
            f"{row.body:,}",
            f"{row.per_second:,.0f}",
            f"{row.p50:.2f}",
            f"{row.p99:.2f}",
            *("" if row is base else f"{number:+.2f}" for number in added),
            "" if row.cpu_us is None else f"{row.cpu_us:.0f}",
            core,
            str(row.failed),
        )
    return shown


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--seconds", default=3, show_default=True, help="Time of each measurement.")
@click.option("--replicas", "count", default=8, show_default=True)
def main(as_json: bool, seconds: int, count: int) -> None:
    """Measure what a router costs."""
    for program in ("haproxy", "wrk", "taskset"):
        if shutil.which(program) is None:
            raise click.UsageError(f"{program} is missing: apt-get install haproxy wrk util-linux")
    rows = asyncio.run(measure(count, seconds))
    if as_json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        Console(width=150).print(table(rows))


if __name__ == "__main__":
    main()
