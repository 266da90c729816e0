# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render import unit
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import (
    Context,
    LaunchSpec,
)

from support.router.haproxy import free_ports

FAKE = Path(__file__).with_name("fake_engine.py")
KFD = "sys/class/kfd/kfd/topology/nodes"
# HIP numbers by KFD node, rocm-smi by BDF: on real MI300X hosts the two differ.
GPUS = {
    "0000:05:00.0": (3, 128),
    "0000:26:00.0": (2, 129),
    "0000:46:00.0": (5, 130),
    "0000:65:00.0": (4, 131),
}
UNIT = "apiary-demo-0.service"


@pytest.fixture
def life():
    """The facts, a copy to change."""
    return json.loads(unit.life_document())


@pytest.fixture
def root(tmp_path):
    """A host with four GPUs."""
    cpu = tmp_path / KFD / "0"
    cpu.mkdir(parents=True)
    (cpu / "properties").write_text("simd_count 0\n")
    (tmp_path / "dev/dri").mkdir(parents=True)
    for bdf, (node, minor) in GPUS.items():
        directory = tmp_path / KFD / str(node)
        directory.mkdir()
        location = int(bdf[5:7], 16) << 8
        (directory / "properties").write_text(
            f"simd_count 1216\nlocation_id {location}\ndomain 0\ndrm_render_minor {minor}\n"
            f"unique_id {node * 1000}\n"
        )
        (directory / "gpu_id").write_text(f"{node * 11}\n")
        (tmp_path / f"dev/dri/renderD{minor}").write_text("")
        device = tmp_path / "sys/bus/pci/devices" / bdf
        (device / "ras").mkdir(parents=True)
        (device / "mem_info_vram_used").write_text("300000000\n")
        (device / "ras/umc_err_count").write_text("ue: 0\nce: 4\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def make_context(root, life):
    """A context on that host; give fields of the spec."""

    def make(environment=None, **fields):
        return Context(spec(**fields), life, environment or {}, str(root))

    return make


def spec(**fields):
    """A spec with whatever is not told."""
    given = {
        "unit": UNIT,
        "deployment": "d",
        "replica": 0,
        "runtime": "native",
        "gpus": (),
        "cpus": None,
        "memory_nodes": (),
        "listen_address": "127.0.0.1",
        "probe_address": "127.0.0.1",
        "port": 0,
        "model_name": "m",
        "weights": "/nowhere",
        "secrets": (),
        "after": (),
        "start_timeout_seconds": 60,
        "drain_timeout_seconds": 5,
        "hang_seconds": 60,
    }
    return LaunchSpec(**{**given, **fields})


def free_port():
    # One that the kernel gives may be some other test's connection before it is used.
    return free_ports(1)[0]


# How fast things go here.
QUICK = {
    "start": {"poll_seconds": 0.05, "deaf_seconds": 0.3, "extend_every_seconds": 0.2},
    "watchdog": {"poll_seconds": 0.05, "answer_seconds": 0.3},
    "drain": {"poll_seconds": 0.05, "teardown_seconds": 1},
    "after_first": {"poll_seconds": 0.05},
    "weights": {"check": "/nonexistent"},
    "backoff": {"jitter": 0},
}


class Supervised:
    """A supervisor in a process of its own, as a host has it, and who listens to it."""

    def __init__(self, directory, life, change, environment, fields, habits, words):
        self.directory = directory
        for path, mode, text in unit.supervisor_files():
            target = directory / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(int(mode, 8))
        for section, values in [*QUICK.items(), *change.items()]:
            life[section].update(values)
        (directory / unit.PACKAGE.lstrip("/") / unit.LIFE).write_text(json.dumps(life))
        weights = directory / "weights"
        weights.mkdir(exist_ok=True)
        (weights / "config.json").write_text("{}")
        self.port = free_port()
        document = asdict(spec(**{"port": self.port, "weights": str(weights), **fields}))
        self.spec = directory / "replica-0.json"
        self.spec.write_text(json.dumps({"schema": "apiary.launch/v1", **document}))
        self.runtime = directory / "run" / UNIT
        self.runtime.mkdir(parents=True, exist_ok=True)
        if failed := habits.pop("failed_starts", 0):
            (self.runtime / "starts").write_text(f"{failed}\n")
        address = str(directory / "notify")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(address)
        self.manager.settimeout(120)
        self.messages = []
        output = os.open("/dev/full", os.O_WRONLY) if habits.pop("full", False) else subprocess.PIPE
        engine = [sys.executable, str(FAKE), json.dumps({"port": self.port, **habits}), *words]
        entry = str(directory / unit.LAUNCHER.lstrip("/"))
        self.process = subprocess.Popen(
            [sys.executable, "-B", entry, "run", "--spec", str(self.spec), "--", *engine],
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "NOTIFY_SOCKET": address,
                "WATCHDOG_USEC": "300000",
                "RUNTIME_DIRECTORY": str(self.runtime),
                **environment,
            },
        )
        if output != subprocess.PIPE:
            os.close(output)
        self.output = {}
        self.lines = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, name), daemon=True)
            for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))
            if stream
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, name):
        self.output[name] = b""
        for line in stream:
            self.output[name] += line
            self.lines.put(line.decode(errors="replace"))

    def line(self, start):
        """The first line from now on that begins so."""
        while True:
            line = self.lines.get(timeout=120)
            if line.startswith(start):
                return line.strip()

    def message(self, wanted):
        """Wait for a message of the supervisor that has this assignment in it."""
        while True:
            told = self.manager.recv(4096).decode()
            self.messages.append(told)
            if any(line.startswith(wanted) for line in told.splitlines()):
                return told

    def core(self):
        return int(self.line("core ").split()[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds=120):
        """Wait for its end; the exit status, and its output complete."""
        status = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(120)
        return status

    @property
    def error(self):
        return self.output["err"].decode(errors="replace")

    def phase(self):
        return (self.runtime / "phase").read_text().strip()

    def starts(self):
        """How many starts it has counted, or None."""
        path = self.runtime / "starts"
        return path.read_text().strip() if path.exists() else None

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(120)
        for stream in filter(None, (self.process.stdout, self.process.stderr, self.manager)):
            stream.close()


@pytest.fixture
def supervise(tmp_path, life):
    """Start a supervisor with a fake engine of some habits; it is gone at the end."""
    made = []

    def start(*words, change=None, environment=None, spec=None, **habits):
        directory = tmp_path / f"host{len(made)}"
        made.append(
            Supervised(directory, life, change or {}, environment or {}, spec or {}, habits, words)
        )
        return made[-1]

    yield start
    for one in made:
        one.close()


def alive(pid):
    """Whether a process runs (a zombie doesn't)."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False
