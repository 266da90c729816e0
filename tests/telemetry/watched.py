# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small fleet on loopback that a real Prometheus watches with the configuration as rendered.

Real are Prometheus, node_exporter and HAProxy, of the distribution; vLLM is its double, in two
versions, AMD's exporter and the hosts' sysfs are simulated. Each host has an address of its own.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.module_utils import host_metrics
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import renumbered
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Experiment,
    Pool,
    RouterSettings,
    Server,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    Ports,
    TelemetryPlan,
    TelemetrySettings,
)
from simgpu.faults import parse_faults
from simgpu.machine import Machine
from simulated_sysfs import generate

from support.demo import demo_plan
from support.router.haproxy import HAProxy, free_ports
from support.telemetry.prometheus import program

LAB = Path(__file__).parents[1] / "lab"
MODEL = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
# Each host: its address, its engine's version, and what is broken on it.
HOSTS = {
    "gpu-001": ("127.0.0.11", "0.33.0", ()),
    "gpu-002": ("127.0.0.12", "0.14.1", ("missing=7",)),
}
# Rules every second; scrapes stay as rendered, with their time-outs, for machines that are busy.
INTERVAL = re.compile(r"^( *(?:evaluation_)?interval): \d+s$", re.M)
ROUTER = "127.0.0.1"
SLO = "ttft:p90:2s,tpot:p90:50ms,itl:p99:100ms,e2el:p90:10s"
SETTINGS = {
    "gpu_host": True,
    "gpus": 8,
    "mesh": True,
    "guest": False,
    "models": {"74a5": "MI325X"},
    "driver": "6.16.13",
    "arguments": ["iommu=pt"],
    "mounts": {"/": "-.mount"},
    "mount_seconds": 3,
    "causes": [],
}


class Prometheus:
    """A Prometheus that runs, asked over its API."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer; raise what it says against the question."""
        url = f"{self.base}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"{parameters}: {refusal.read().decode()}") from refusal

    def query(self, expression: str) -> list[Any]:
        """Return the series that an expression has now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def labels(self, series: str) -> set[str]:
        """Return the names of labels that a series has."""
        return set(self.ask("labels", **{"match[]": series})) - {"__name__"}

    def values(self, series: str, label: str) -> list[str]:
        """Return what Grafana's label_values gives."""
        found: list[str] = self.ask(f"label/{label}/values", **{"match[]": series})
        return found


def until(condition: Callable[[], bool], what: Callable[[], str], seconds: float = 60) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what()}"
        time.sleep(0.2)


def answers(address: str, port: int, path: str = "/metrics") -> bool:
    """Say whether a server answers 200."""
    try:
        with closing(http.client.HTTPConnection(address, port, timeout=5)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status == 200
    except OSError:
        return False


class Fleet:
    """The processes of the fleet, and what was rendered for it."""

    def __init__(self, directory: Path, vllm: Callable[[str], Path], models: Path) -> None:
        self.directory, self.vllm, self.models = directory, vllm, models
        self.amd, self.node, self.port = free_ports(3)
        self.engines: list[tuple[str, str, int]] = []
        self.hosts: list[MonitoredHost] = []
        self.haproxy: HAProxy | None = None
        self.prometheus = Prometheus(self.port)
        self._processes = ExitStack()
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *command: object, **environment: str) -> None:
        """Start a program that ends with the fleet."""
        log = (self.directory / "log").open("ab")
        self._processes.callback(log.close)
        process = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._processes.callback(process.wait)
        self._running.append(process)

    def host(self, name: str, address: str, version: str, faults: Sequence[str]) -> None:
        """Start a GPU host: engines, AMD's exporter, node_exporter with what the host tells."""
        root = self.directory / name
        machine = Machine(faults=parse_faults(list(faults)))
        generate(root / "sys", machine)
        (root / "dev/dri").mkdir(parents=True)
        (root / "dev/kfd").touch()
        for minor in range(128, 136):
            (root / f"dev/dri/renderD{minor}").touch()
        plan = self._plan(name, version)
        kept = root / f"etc/apiary/{plan.deployment.name}/plan.json"
        kept.parent.mkdir(parents=True)
        kept.write_text(dumps(plan))
        self.answered(root, plan, right=40, wrong=0)
        (root / "proc/sys/kernel").mkdir(parents=True)
        (root / "proc/sys/kernel/numa_balancing").write_text("0\n")
        (root / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz iommu=pt\n")
        for replica in plan.replicas:
            self._engine(root, address, version, replica.port)
        self._exporters(name, address, root)
        self.hosts.append(MonitoredHost(name, address, f"rack-{name[-1]}", plans=(plan,)))

    def answered(self, root: Path, plan: Plan, **counts: int) -> None:
        """Record the results of questions as the replicas' supervisors do."""
        for replica in plan.replicas:
            record = root / "run/apiary" / replica.unit / "quality.json"
            record.parent.mkdir(parents=True, exist_ok=True)
            answers = {"counts": counts, "answers": {"questions-0": 1}}
            record.write_text(json.dumps({"recipe": replica.recipe, **answers}))

    def _plan(self, name: str, version: str) -> Plan:
        plan = demo_plan()
        engine = replace(plan.deployment.engine, version=version)
        ports = free_ports(len(plan.replicas))
        return replace(
            plan,
            host=name,
            deployment=replace(plan.deployment, engine=engine),
            replicas=tuple(
                replace(one, port=port) for one, port in zip(plan.replicas, ports, strict=True)
            ),
        )

    def _engine(self, root: Path, address: str, version: str, port: int) -> None:
        self.start(
            sys.executable,
            *(self.vllm(version), "serve", self.models / MODEL),
            *("--host", address, "--port", port, "--served-model-name", MODEL),
            APIARY_DOUBLE_ROOT=str(root),
            APIARY_DOUBLE_PHASE_SECONDS="0",
            APIARY_DOUBLE_STEP_SECONDS="0.002",
            HIP_VISIBLE_DEVICES=str(len(self.engines)),
            CUDA_VISIBLE_DEVICES=str(len(self.engines)),
        )
        self.engines.append((root.name, address, port))

    def _exporters(self, name: str, address: str, root: Path) -> None:
        config = root / "amd.json"
        config.write_text(
            json.dumps(
                {
                    "ServerPort": self.amd,
                    "CommonConfig": {"MetricsFieldPrefix": "amd_"},
                    "GPUConfig": {"Fields": []},
                }
            )
        )
        double = LAB / "amd_exporter_double/exporter_double.py"
        self.start(
            *(sys.executable, double, "-bind", address),
            *("-amd-metrics-config", config, "--root", root),
        )
        self._node_exporter(address, self.textfile(root))

    def textfile(self, root: Path) -> Path:
        """Write what the host tells of itself, by the program that hosts run; return where."""
        where = root / "textfile"
        where.mkdir(exist_ok=True)
        settings = {**SETTINGS, "metrics": knowledge("telemetry/host.yml")["metrics"]}
        text = host_metrics.gather(settings, time.time(), str(root), _active)
        (where / "apiary.prom").write_text(text)
        return where

    def _node_exporter(self, address: str, textfile: Path) -> None:
        self.start(
            program("prometheus-node-exporter"),
            f"--web.listen-address={address}:{self.node}",
            f"--collector.textfile.directory={textfile}",
            "--collector.mountstats",
        )

    async def router(self) -> None:
        """Start HAProxy before all engines, and node_exporter beside it."""
        plan = self.hosts[0].plans[0]
        servers = tuple(
            Server(f"{name}-{index % 2}", name, index % 2, address, port, 0, 1000, 100)
            for index, (name, address, port) in enumerate(self.engines)
        )
        name = plan.deployment.name
        pool = renumbered(Pool(name, plan.deployment.model.name, free_ports(1)[0], servers))
        # Half of the sessions are those of an experiment, at the same engines.
        trial = replace(pool, deployment="trial", port=free_ports(1)[0])
        settings = RouterSettings(experiments={name: Experiment("trial", 0.5)})
        self.haproxy = HAProxy(self.directory / "haproxy", [pool, trial], settings)
        await self.haproxy.start()
        self._processes.callback(self.haproxy.stop)
        empty = self.directory / "empty"
        empty.mkdir()
        self._node_exporter(ROUTER, empty)
        self.hosts.append(
            MonitoredHost(
                "router-001",
                ROUTER,
                "rack-1",
                router_port=self.haproxy.settings.admin_port,
                exporters=("node",),
            )
        )

    def watch(self) -> TelemetryPlan:
        """Start Prometheus with what is rendered, only faster; return the plan."""
        # Nobody is there.
        self.hosts.append(MonitoredHost("gpu-003", "127.0.0.13", "rack-3", exporters=("node",)))
        plan = telemetry_plan(
            self.hosts,
            TelemetrySettings(
                slos={self.hosts[0].plans[0].deployment.name: SLO},
                scrape_seconds=5,
                ports=Ports(
                    amd=self.amd,
                    node=self.node,
                    prometheus=self.port,
                ),
            ),
        )
        directory = self.directory / "prometheus"
        for name, text in plan.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            quick = re.sub(INTERVAL, r"\1: 1s", text)
            path.write_text(quick if name.endswith(".yml") else text)
        self.start(
            program("prometheus"),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        )
        until(lambda: answers("127.0.0.1", self.port, "/-/ready"), lambda: "Prometheus")
        return plan

    def await_engines(self) -> None:
        for _name, address, port in self.engines:
            at = (address, port)
            until(partial(answers, *at, "/health"), lambda at=at: f"an engine at {at}")

    def close(self) -> None:
        """End all programs at once, and wait for them."""
        for process in self._running:
            process.terminate()
        self._processes.close()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Have clients send requests, some of a session, until the block ends."""
        assert self.haproxy is not None
        ended = threading.Event()
        clients = [
            threading.Thread(target=_client, args=(self.haproxy.port, number, ended), daemon=True)
            for number in range(4)
        ]
        for one in clients:
            one.start()
        try:
            yield
        finally:
            ended.set()
            for one in clients:
                one.join()


def _client(port: int, number: int, ended: threading.Event) -> None:
    body = {"model": MODEL, "prompt": "word " * 50, "max_tokens": 100, "stream": True}
    while not ended.wait(0.1):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            headers = {"X-Session-Id": f"s{number}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()


def _active(units: list[str]) -> dict[str, dict[str, str]]:
    return {unit: {"ActiveState": "active", "NRestarts": "0"} for unit in units}
