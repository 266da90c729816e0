# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts, replicas and routers, as somebody sees them who may break them."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from loss.load import Load

ROOT = Path(__file__).parents[2]
# An engine's processes, as /proc/PID/comm has them.
CORE, WORKER = "VLLM::EngineCor", "VLLM::Worker_TP"
SOCKET = "/run/haproxy/admin.sock"
# An image without socat: what HAProxy answers to one command on its admin socket.
ASK = f"""
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect({SOCKET!r})
s.sendall(sys.argv[1].encode() + b"\\n"); s.shutdown(socket.SHUT_WR)
while data := s.recv(65536): sys.stdout.buffer.write(data)
"""


def await_true(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until the condition holds and return how long that took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - started


def kill_tree(process: subprocess.Popen[Any]) -> None:
    """End a command and all that it started at once, as a machine that loses power does."""
    parents: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [process.pid], [process.pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    for one in found:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()


@dataclass(frozen=True)
class Replica:
    """One replica; ``name`` is how routers call it."""

    host: str
    index: int
    unit: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.host}-{self.index}"


@dataclass(frozen=True)
class Fleet:
    """One lab that is up and serves; ``variables`` are the extra variables of its playbooks.

    ``rate`` and ``tokens`` are what its replicas can do while one of them is out.
    """

    lab: str
    variables: tuple[str, ...] = ()
    rate: float = 30.0
    tokens: int = 20

    @property
    def directory(self) -> Path:
        root = os.environ.get("APIARY_LAB_DIR")
        return (Path(root) if root else ROOT / ".lab") / self.lab

    @cached_property
    def hosts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "hosts.json").read_text())["hosts"]
        return found

    def named(self, group: str) -> list[str]:
        return [name for name, host in self.hosts.items() if host["group"] == group]

    @property
    def routers(self) -> list[str]:
        return self.named("routers")

    @cached_property
    def plans(self) -> dict[str, Any]:
        """Return the plan of each GPU host, as the site playbook left it."""
        files = {
            host: self.directory / "artifacts" / host / "plan.json"
            for host in self.named("gpu_hosts")
        }
        return {host: json.loads(path.read_text()) for host, path in files.items()}

    @cached_property
    def replicas(self) -> list[Replica]:
        return [
            Replica(host, index, one["unit"], one["port"])
            for host, plan in self.plans.items()
            for index, one in enumerate(plan["replicas"])
        ]

    @property
    def deployment(self) -> str:
        (name,) = {plan["deployment"]["name"] for plan in self.plans.values()}
        return str(name)

    @property
    def model(self) -> str:
        (name,) = {plan["deployment"]["model"]["name"] for plan in self.plans.values()}
        return str(name)

    def endpoint(self, router: str, port: int = 8080) -> tuple[str, int]:
        return self.hosts[router]["address_in_lab"], port

    @property
    def virtual(self) -> tuple[str, int]:
        return self.hosts[self.routers[0]]["virtual_address"], 8080

    def load(self, **options: Any) -> Load:
        """Return a load on all routers."""
        targets = tuple(self.endpoint(router) for router in self.routers)
        usual = {"model": self.model, "rate": self.rate, "tokens": self.tokens}
        return Load(**{"targets": targets, **usual, **options})

    def load_of_address(self) -> Load:
        """Return a load on the virtual address, whose clients wait for as long as it may move."""
        return self.load(targets=(self.virtual,), connect_seconds=25, seconds=240)

    def run(self, host: str, command: str, *, check: bool = True) -> str:
        """Run a shell command on a host as root, beside all that its SSH and systemd do."""
        argv = ["docker", "exec", self.hosts[host]["container"], "sh", "-c", command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{host}: {command}: {done.stdout}{done.stderr}")
        return done.stdout

    def docker(self, action: str, host: str) -> None:
        """Do something to a host as a whole."""
        argv = ["docker", action, self.hosts[host]["container"]]
        subprocess.run(argv, capture_output=True, timeout=60, check=True)

    def command(self, name: str, *options: str) -> dict[str, Any]:
        """Return how a playbook is started as an operator does, for subprocess."""
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        extra = [part for one in self.variables for part in ("-e", one)]
        return {
            "args": [program, "-i", "inventory/lab", f"playbooks/{name}.yml", *extra, *options],
            "cwd": ROOT,
            "env": {
                **os.environ,
                "APIARY_LAB": self.lab,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            },
            "stdin": subprocess.DEVNULL,
        }

    def playbook(self, name: str, *options: str) -> str:
        """Run a playbook as an operator does and return its output."""
        done = subprocess.run(
            **self.command(name, *options),
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{name}.yml {options}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def begin(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """Begin a playbook in a session of its own, to be killed as a whole."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(**self.command(name, *options), **quiet, start_new_session=True)

    def cut(self, host: str) -> Callable[[], None]:
        """Take a host off the network, and return what brings it back."""
        gateway = self.run(host, "ip route show default | cut -d' ' -f3").strip()
        self.run(host, "ip link set eth0 down")
        joined = f"ip link set eth0 up; ip route replace default via {gateway}"

        def join() -> None:
            self.run(host, joined)

        return join

    def show(self, replica: Replica, *properties: str) -> dict[str, str]:
        """Return properties of a replica's unit."""
        output = self.run(
            replica.host, f"systemctl show --property={','.join(properties)} {replica.unit}"
        )
        return dict(line.split("=", 1) for line in output.splitlines())

    def processes(self, replica: Replica) -> dict[str, list[int]]:
        """Return a replica's processes by name; its main process is called `main`."""
        main = int(self.show(replica, "MainPID")["MainPID"])
        group = self.show(replica, "ControlGroup")["ControlGroup"]
        output = self.run(
            replica.host,
            f"cat /sys/fs/cgroup{group}/cgroup.procs | while read pid;"
            ' do echo "$pid $(cat /proc/$pid/comm)"; done',
        )
        found: dict[str, list[int]] = {}
        for line in output.splitlines():
            pid, name = line.split(" ", 1)
            found.setdefault("main" if int(pid) == main else name, []).append(int(pid))
        return found

    def restarts(self, replica: Replica) -> int:
        return int(self.show(replica, "NRestarts")["NRestarts"])

    def ask_router(self, router: str, command: str) -> str:
        """Return what a router's HAProxy answers on its admin socket; nothing if it is down."""
        asked = f"python3 -c {shlex.quote(ASK)} {shlex.quote(command)} 2>/dev/null"
        return self.run(router, asked, check=False)

    def servers(self, router: str) -> dict[str, dict[str, str]]:
        """Return a router's view of the replicas: one row of `show stat` each, by server."""
        text = self.ask_router(router, "show stat").removeprefix("# ")
        rows = csv.DictReader(io.StringIO(text))
        return {
            row["svname"]: row
            for row in rows
            if row["pxname"] == self.deployment and row["svname"] != "BACKEND"
        }

    def up(self, router: str) -> set[str]:
        """Return the servers that a router sends requests to."""
        rows = self.servers(router)
        return {name for name, row in rows.items() if row["status"].startswith("UP")}

    def whole(self) -> bool:
        """Say whether every router uses every replica."""
        names = {replica.name for replica in self.replicas}
        return all(self.up(router) == names for router in self.routers)

    def await_whole(self, seconds: float = 240) -> float:
        """Wait until every router uses every replica, and return how long that took."""
        return await_true(self.whole, seconds, "every router uses every replica")

    def await_settled(self, seconds: float = 240) -> float:
        """Wait until no replica's share grows any more: each slow start is over."""

        def settled() -> bool:
            rows = [row for router in self.routers for row in self.servers(router).values()]
            # Replicas of one kind have one weight.
            return len({row["weight"] for row in rows}) == 1

        return await_true(settled, seconds, "every replica has its whole share")

    def await_out(self, names: set[str], seconds: float = 120) -> float:
        """Wait until no router uses any of these servers, and return how long that took."""

        def out() -> bool:
            return not any(names & self.up(router) for router in self.routers)

        return await_true(out, seconds, f"{', '.join(sorted(names))} are out")

    def busy(self, replica: Replica) -> bool:
        """Say whether a router waits for an answer of this replica."""
        rows = (self.servers(router).get(replica.name, {}) for router in self.routers)
        return any(int(row.get("scur") or 0) > 0 for row in rows)

    def holder(self) -> str:
        """Return the router that has the virtual address, or nothing while none has it."""
        address = f" {self.virtual[0]}/"
        for router in self.routers:
            if address in self.run(router, "ip -4 -o address show", check=False):
                return router
        return ""

    def await_holder(self) -> str:
        """Wait until a router has the virtual address, and return it."""
        found = ""

        def held() -> str:
            nonlocal found
            found = self.holder()
            return found

        await_true(held, 120, "a router has the address")
        return found

    def await_moved(self, holder: str) -> float:
        """Wait until another router has the virtual address, and return how long that took."""
        return await_true(lambda: self.holder() not in ("", holder), 120, "the address moved")


def start(lab: str, **hosts: int) -> None:
    """Bring up so many hosts of each kind, with the double and its model."""
    argv = [sys.executable, str(ROOT / "tests/lab/demo.py"), "hosts", "--name", lab]
    argv += [f"--{kind}={count}" for kind, count in hosts.items()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def stop(lab: str) -> None:
    """Take a lab down."""
    argv = [sys.executable, str(ROOT / "tests/lab/lab.py"), "down", "--name", lab]
    subprocess.run(argv, capture_output=True, check=True)
