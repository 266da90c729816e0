# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One trace through a real router and real vLLM: what the collector gets of a request.

vLLM, HAProxy and the collector run here, beside the lab: the command of vLLM is the plan's, and its
wheels and the model are those that `make e2e` has fetched for the lab's hosts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    Limits,
    ModelSpec,
    Tracing,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)

from support.planned import build_plan
from support.replicas import Client
from support.router.haproxy import HAProxy, free_ports, pool_of
from support.scenario import QUICK
from support.telemetry.otlp import of_protobuf
from support.topology.topologies import mi325x
from support.waiting import await_true

ROOT = Path(__file__).parents[2]
# What tests/lab/mirror fetches for the lab's hosts, for their Python.
WHEELS = ROOT / ".lab/mirror/wheels"
NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
MODEL = ROOT / ".lab/mirror/models" / NAME
VERSION = "0.32.0"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# As inventory/lab/group_vars/lab_vllm.yml: what a CPU cannot do.
ARGS = {"dtype": "float32", "enforce-eager": True, "kv-cache-memory-bytes": 268435456}
PROMPT = "what-nobody-shall-read"


def runs_here():
    """Whether vLLM's packages, which are for one version of Python, run on this machine."""
    if not ((WHEELS / "stamp").is_file() and MODEL.is_dir()):
        return False
    asked = ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"]
    return subprocess.run(asked, capture_output=True, check=False).stdout == b"3 11\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Real vLLM, installed for this machine as on a host."""
    if not runs_here():
        pytest.skip("needs real vLLM, and the Python that its packages are for (make e2e)")
    place = tmp_path_factory.mktemp("vllm")
    subprocess.run(["/usr/bin/python3", "-m", "venv", place], check=True)
    pip = [place / "bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    pip += ["--no-index", f"--find-links={WHEELS}", f"--requirement={WHEELS}/vllm-{VERSION}.txt"]
    subprocess.run(pip, check=True)
    yield place
    shutil.rmtree(place)


class GrpcCollector:
    """A collector by gRPC, as a process with the packages of vLLM."""

    def __init__(self, place, python):
        self.kept = place / "requests"
        self.kept.touch()
        self.process = subprocess.Popen(
            [python, Path(__file__).parent / "grpc_collector.py", self.kept],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    @property
    def bodies(self):
        return [bytes.fromhex(line) for line in self.kept.read_text().splitlines()]

    @property
    def spans(self):
        return [span for body in self.bodies for span in of_protobuf(body)]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def planned(home, endpoint, port):
    """Return the replica of a plan, on port ``port`` of a simulated host."""
    deployment = Deployment(
        name="smol",
        model=ModelSpec(NAME, str(MODEL)),
        engine=EngineSpec(VERSION, str(home / "bin/vllm"), args=ARGS),
        layout=Layout(1, 1),
        limits=Limits(max_model_len=4096, max_num_batched_tokens=4096, drain_timeout_seconds=5),
        listen_address="127.0.0.1",
        base_port=port,
        tracing=Tracing(endpoint),
    )
    model = read_config((MODEL / "config.json").read_text(), "config.json")
    plan = build_plan(deployment, mi325x(), model)
    return plan, plan.replicas[0]


@pytest.fixture(scope="module")
def grpc(home, tmp_path_factory):
    one = GrpcCollector(tmp_path_factory.mktemp("grpc"), home / "bin/python")
    yield one
    one.stop()


@pytest.fixture(scope="module")
def engine(home, grpc, tmp_path_factory):
    """Real vLLM by the plan's command; gives plan, replica and process."""
    place = tmp_path_factory.mktemp("engine")
    plan, replica = planned(home, grpc.url, free_ports(1)[0])
    env = {
        name: str(place / name) if value.startswith("/var/cache/") else value
        for name, value in replica.env.items()
    }
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            replica.argv,
            env={**os.environ, **env, "OTEL_BSP_SCHEDULE_DELAY": "100"},
            cwd=place,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            await_true(lambda: answers(replica.port) or ended(process, place / "log"), 600)
            yield plan, replica, process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def ended(process, log):
    assert process.poll() is None, log.read_text(errors="replace")[-6000:]
    return False


ASKED = {"model": NAME, "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True}


def ask(place, replica, *requests):
    """Send a request with each of these headers through a router; return the statuses."""
    settings = RouterSettings(health=QUICK, tracing=RouterTracing())

    async def scenario():
        pool = pool_of([replica.port], deployment="smol")
        async with HAProxy(place / "router", [pool], settings) as router:
            with closing(Client(router.port)) as client:
                kind = {"Content-Type": "application/json"}
                return [(await client.ask(ASKED, kind | headers)).status for headers in requests]

    return asyncio.run(scenario())


def served(grpc):
    return [span for span in grpc.spans if span.name == "llm_request"]


def test_an_engines_span_belongs_to_the_clients_trace(tmp_path, grpc, engine):
    plan, replica, _process = engine
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
    assert ask(tmp_path, replica, sent, {}) == [200, 200]
    await_true(lambda: len(served(grpc)) == 2, 60)
    # The request that the client did not begin is a trace of its own.
    [span] = [span for span in served(grpc) if span.trace == TRACE]
    assert (span.parent, span.kind) == (PARENT, 2)
    facts = knowledge("tracing.yml")["engine"]
    assert span.name == facts["span"]
    assert set(facts["attributes"]) <= set(span.attributes)
    assert span.attributes["gen_ai.usage.completion_tokens"] == 8
    assert "mine" in span.attributes["gen_ai.request.id"]

    resource = span.resource
    assert resource["service.name"] == "smol"
    assert resource["service.instance.id"] == f"{plan.host}-0"
    assert resource["apiary.gpus"].split() == list(replica.gpus)
    assert resource["apiary.numa_nodes"] == " ".join(map(str, replica.memory_nodes))
    assert PROMPT.encode() not in b"".join(grpc.bodies)


def test_what_is_not_sampled_has_no_span(tmp_path, grpc, engine):
    _plan, replica, _process = engine
    unsampled = {"traceparent": f"00-{'1' * 32}-{PARENT}-00"}
    sampled = {"traceparent": f"00-{'2' * 32}-{PARENT}-01"}
    assert ask(tmp_path, replica, unsampled, sampled) == [200, 200]
    # The later request's span is there, and so would be that of the earlier one.
    await_true(lambda: any(span.trace == "2" * 32 for span in grpc.spans), 60)
    assert not any(span.trace == "1" * 32 for span in grpc.spans)


def test_a_dead_collector_costs_no_request_and_delays_no_stop(tmp_path, grpc, engine):
    _plan, replica, process = engine
    grpc.stop()
    assert ask(tmp_path, replica, *[{}] * 5) == [200] * 5
    os.kill(process.pid, signal.SIGTERM)
    # A unit's stop has the drain's time and half a minute more.
    process.wait(timeout=120)
    assert process.returncode in (0, 143, -signal.SIGTERM)
