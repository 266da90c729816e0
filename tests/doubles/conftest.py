# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A built double, a host of eight GPUs made of plain files, and a running server."""

from __future__ import annotations

import functools
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve()
DOUBLE = HERE.parents[1] / "lab" / "vllm_double"
sys.path.insert(0, str(DOUBLE))

BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
BDFS = tuple(f"0000:{bus:02x}:00.0" for bus in BUSES)
MODEL = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"lab_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def load_tool() -> Callable[[str], ModuleType]:
    """Load a program below tests/lab as a module."""
    return lambda path: _load(DOUBLE.parent / path)


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    """tests/lab/vllm_double/build.py as a module."""
    return _load(DOUBLE / "build.py")


@pytest.fixture(scope="session")
def document(builder: ModuleType) -> Callable[[str], dict[str, Any]]:
    """The table of one version, made once."""
    return functools.cache(builder.version_document)


@pytest.fixture(scope="session")
def executable(
    builder: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The built `vllm` of one version."""
    return functools.cache(
        lambda version: builder.build(version, tmp_path_factory.mktemp("double") / version)
    )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model tree as it lies at /srv/models."""
    tree = tmp_path_factory.mktemp("models")
    _load(DOUBLE.parent / "models.py").write_model(tree, MODEL)
    return tree


def write_host(root: Path, order: tuple[int, ...] = tuple(range(8))) -> Path:
    """Write sys/ and dev/ of a host whose KFD nodes hold GPUs in the given bus order."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for node in (0, 1):
        (nodes / str(node)).mkdir(parents=True)
        (nodes / str(node) / "properties").write_text("simd_count 0\nlocation_id 0\n")
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    for rank, index in enumerate(order):
        (nodes / str(rank + 2)).mkdir()
        lines = {
            "simd_count": 1216,
            "domain": 0,
            "location_id": BUSES[index] << 8,
            "drm_render_minor": 128 + index,
            "unique_id": 0x9FF0C5F642C68900 + index,
        }
        text = "".join(f"{key} {value}\n" for key, value in lines.items())
        (nodes / str(rank + 2) / "properties").write_text(text)
        (root / f"dev/dri/renderD{128 + index}").touch()
    return root


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host of eight GPUs, its KFD order not its bus order."""
    return write_host(tmp_path / "host", (1, 3, 2, 0, 5, 7, 6, 4))


class Running:
    """One `vllm serve` process; reads its log, so that tests await lines and not the clock."""

    def __init__(self, command: list[str], environment: dict[str, str], port: int) -> None:
        self.port = port
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self.lines.append("")  # the end
            self._news.notify_all()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def await_line(self, text: str) -> str:
        """Return the first line with ``text``; fail when the process ends without one."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self.lines[-1:] == [""], 60)
            line = found()
        assert line is not None, self.log
        return line

    def ready(self) -> Running:
        self.await_line("Application startup complete.")
        return self

    def end(self) -> int:
        """Wait for the process and return its exit status."""
        status = self.process.wait(60)
        self._reader.join(60)
        return status

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and answer, JSON parsed where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            payload = body if isinstance(body, (str, type(None))) else json.dumps(body)
            connection.request(method, path, payload, headers or {})
            answer = connection.getresponse()
            text = answer.read().decode()
            kind = answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if kind == "application/json" else text
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, Any]:
        return self.send("GET", path)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        return self.send("POST", path, body)

    def samples(self) -> dict[str, float]:
        """Return /metrics as name{labels} → value."""
        text = self.get("/metrics")[1]
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def await_samples(self, condition: Callable[[dict[str, float]], bool]) -> None:
        """Scrape until the condition holds; fail when it does not within a minute."""
        end = time.monotonic() + 60
        while not condition(self.samples()):
            assert time.monotonic() < end, self.samples()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Start = Callable[..., Running]


@pytest.fixture
def start(executable: Callable[[str], Path], host: Path, models: Path) -> Iterator[Start]:
    """Start `vllm serve MODEL …` of a version on the host; all are ended with the test."""
    started: list[Running] = []

    def begin(
        *arguments: str,
        version: str = "0.33.0",
        model: str | Path | None = None,
        port: int | None = None,
        **environment: str,
    ) -> Running:
        port = port or free_port()
        target = str(model or models / MODEL)
        command = [sys.executable, str(executable(version)), "serve", target]
        command += ["--host", "127.0.0.1", "--port", str(port), *arguments]
        base = {
            "PATH": os.environ["PATH"],
            "APIARY_DOUBLE_ROOT": str(host),
            "APIARY_DOUBLE_PHASE_SECONDS": "0",
            "APIARY_DOUBLE_WATCHDOG_SECONDS": "1",
        }
        started.append(Running(command, {**base, **environment}, port))
        return started[-1]

    yield begin
    for running in started:
        running.close()
