# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of the one simulated host of this lab, run as an operator runs them.

The tests follow one another: a change, what may follow it, the way back, and what is refused.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import http.client
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support.host.lab import lab_variables

ROOT = Path(__file__).parents[2]
LAB = os.environ.get("APIARY_LAB", "demo")
HOST = "gpu-001"
LOCK = "/var/lib/apiary/rollout/qwen3-235b.lock"
ROUTER = "router-001"
UNITS = ("apiary-qwen3-235b-0.service", "apiary-qwen3-235b-1.service")
# Molecule sets a configuration of its own; an operator has the project's.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_NOCOLOR": "1",
}


# An image without socat: what HAProxy answers to one command on its admin socket.
ASK = """
import socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect("/run/haproxy/admin.sock")
asked.sendall(sys.argv[1].encode() + b"\\n")
print(asked.makefile().read())
"""


@dataclass(frozen=True)
class Run:
    """What a playbook printed."""

    code: int
    output: str

    @property
    def changed(self):
        """How many tasks changed the host."""
        (line,) = [line for line in self.output.splitlines() if line.startswith(f"{HOST} ")]
        counts = dict(word.split("=") for word in line.split(":", 1)[1].split())
        return int(counts["changed"])


@dataclass
class Answers:
    """Who answered and who did not, asked every tenth of a second while something happens."""

    seen: list = field(default_factory=list)

    @property
    def nobody(self):
        """The moments at which no replica was healthy."""
        return [up for up in self.seen if not any(up)]


@dataclass(frozen=True)
class Operator:
    """Somebody at the controller with artifacts and variables of his own."""

    directory: Path

    def play(self, name, *arguments, deployment=None):
        """Run a playbook, with another deployment than the lab's if there is one."""
        extra = []
        if deployment:
            # Runs at the same time must not read one another's.
            path = Path(tempfile.mkdtemp(dir=self.directory)) / "deployment.json"
            path.write_text(json.dumps({"apiary_deployment": deployment}))
            extra = ["-e", f"@{path}"]
        command = ["ansible-playbook", "-i", "inventory/lab", f"playbooks/{name}.yml"]
        done = subprocess.run(
            [*command, *extra, *arguments, "-e", f"apiary_artifacts={self.directory}"],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def document(self, name):
        return json.loads((self.directory / HOST / name).read_text())

    def shell(self, line, host=HOST):
        """Run a line of shell as root on a host; return its output."""
        command = [sys.executable, "tests/lab/lab.py", "ssh", "--name", LAB, host]
        done = subprocess.run(
            [*command, f"sudo sh -c {shlex.quote(line)}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def starts(self):
        """Return which start of each replica this is, by systemd's own mark."""
        told = self.shell(f"systemctl show --property=InvocationID {' '.join(UNITS)}")
        return dict(zip(UNITS, told.split(), strict=True))

    def active(self):
        return self.shell(f"systemctl is-active {' '.join(UNITS)}").split()

    def current(self):
        return self.shell("readlink /var/lib/apiary/releases/qwen3-235b/current").strip()

    def argv(self, unit):
        return self.shell(f"systemctl show --property=ExecStart {unit}")

    def lock(self, out):
        """Leave the lock of somebody else's run, which had taken these units out."""
        document = {
            "schema": "apiary.rollout-lock/v1",
            "owner": "bob@elsewhere",
            "since": "x",
            "out": out,
        }
        text = shlex.quote(json.dumps(document))
        self.shell(f"mkdir -p {Path(LOCK).parent}; echo {text} > {LOCK}")

    def locked(self):
        """Return the lock's text, nothing if there is none."""
        return self.shell(f"cat {LOCK} 2>/dev/null")

    def router(self, command):
        """Return what a router's HAProxy answers to a command on its admin socket."""
        return self.shell(f"python3 -c {shlex.quote(ASK)} {shlex.quote(command)}", ROUTER)

    def taken_out(self):
        """Return the replicas that the router gets no requests to by somebody's wish."""
        rows = csv.DictReader(io.StringIO(self.router("show stat").removeprefix("# ")))
        return [row["svname"] for row in rows if row["status"].startswith(("DRAIN", "MAINT"))]


@pytest.fixture(scope="session")
def operator(tmp_path_factory):
    return Operator(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="session")
def ports():
    """The published ports of the replicas."""
    published = lab_variables()[HOST]["lab_ports"]
    return published["8000"], published["8001"]


@pytest.fixture
def deployment():
    """The lab's deployment, with other limits: a function."""
    variables = yaml.safe_load((ROOT / "inventory/lab/group_vars/gpu_hosts.yml").read_text())

    def changed(**limits):
        document = copy.deepcopy(variables["apiary_deployment"])
        document["limits"].update(limits)
        return document

    return changed


@pytest.fixture(scope="session")
def watched(ports):
    """What the replicas' health is while something is done: a context."""
    return lambda: watch_health(ports)


@contextlib.contextmanager
def watch_health(ports):
    found, over = Answers(), threading.Event()

    def healthy(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def watch():
        while not over.wait(0.1):
            found.seen.append(tuple(healthy(port) for port in ports))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
