# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One trace through a real router and real vLLM: what the collector gets of a request.

vLLM, HAProxy, the exporter and collectors run here, beside the lab: the command of vLLM is the
plan's, with what `make e2e` has prepared for the lab's hosts. The router's spans come by HTTP as
JSON, the engine's by gRPC.
"""

from __future__ import annotations

import asyncio
import os
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
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import build_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)

from support.haproxy import HAProxy, free_ports, pool_of
from support.otlp import Collector, of_protobuf
from support.replicas import Client
from support.scenario import QUICK
from support.topologies import mi325x
from support.tracing import counters, exporting, until

ROOT = Path(__file__).parents[2]
# What tests/lab/real_vllm prepares for the lab's hosts, for their Python.
EXECUTABLE = ROOT / ".lab/real-vllm/bin/vllm"
MODEL = ROOT / ".lab/tiny-models/apiary/tiny-qwen3"
VERSION = "0.32.0"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# As inventory/lab/group_vars/lab_e2e.yml: what a CPU cannot do.
ARGS = {"dtype": "float32", "enforce-eager": True, "kv-cache-memory-bytes": 268435456}
PROMPT = "what-nobody-shall-read"


def runs_here():
    """Whether vLLM's packages, which are for one version of Python, run on this machine."""
    if not (EXECUTABLE.is_file() and MODEL.is_dir()):
        return False
    asked = ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"]
    return subprocess.run(asked, capture_output=True, check=False).stdout == b"3 11\n"


class GrpcCollector:
    """A collector by gRPC, as a process with the packages of vLLM."""

    def __init__(self, place):
        self.kept = place / "requests"
        self.kept.touch()
        self.process = subprocess.Popen(
            ["/usr/bin/python3", Path(__file__).parent / "grpc_collector.py", self.kept],
            env={**os.environ, "PYTHONPATH": str(EXECUTABLE.parents[1] / "site")},
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


def planned(endpoint, port):
    """Return the replica of a plan, on port ``port`` of a simulated host."""
    deployment = Deployment(
        name="tiny",
        model=ModelSpec("apiary/tiny-qwen3", str(MODEL)),
        engine=EngineSpec(VERSION, str(EXECUTABLE), args=ARGS),
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
def collector():
    with Collector() as one:
        yield one


@pytest.fixture(scope="module")
def grpc(tmp_path_factory):
    if not runs_here():
        pytest.skip("needs real vLLM, and the Python that its packages are for (make e2e)")
    one = GrpcCollector(tmp_path_factory.mktemp("grpc"))
    yield one
    one.stop()


@pytest.fixture(scope="module")
def engine(grpc, tmp_path_factory):
    """Real vLLM by the plan's command; gives plan, replica and process."""
    place = tmp_path_factory.mktemp("engine")
    plan, replica = planned(grpc.url, free_ports(1)[0])
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
            until(lambda: answers(replica.port) or ended(process, place / "log"), 600)
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


ASKED = {"model": "apiary/tiny-qwen3", "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True}


def ask(place, collector, replica, *asked):
    """Ask through a router with these headers; return the answers' statuses."""
    tracing = RouterTracing(collector.url, port=free_ports(1)[0])
    settings = RouterSettings(health=QUICK, tracing=tracing)

    async def scenario():
        pool = pool_of([replica.port], deployment="tiny")
        async with HAProxy(place / "router", [pool], settings) as router:
            with exporting(router, attempts=1) as told, closing(Client(router.port)) as client:
                kind = {"Content-Type": "application/json"}
                said = [(await client.ask(ASKED, kind | headers)).status for headers in asked]
                await asyncio.to_thread(until, lambda: spans_of(told) == len(asked), 60)
            return said

    return asyncio.run(scenario())


def spans_of(directory):
    """Return how many lines of the router's the exporter is done with."""
    found = counters(directory)
    return sum(count for name, count in found.items() if name.startswith("apiary_trace_spans"))


def of_trace(collectors, trace):
    return [one for collector in collectors for one in collector.spans if one.trace == trace]


def test_a_request_is_one_trace_through_router_and_engine(tmp_path, collector, grpc, engine):
    plan, replica, _process = engine
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
    assert ask(tmp_path, collector, replica, sent, {}) == [200, 200]
    until(lambda: len([one for one in grpc.spans if one.name == "llm_request"]) == 2, 60)
    router = collector.spans
    served = [one for one in grpc.spans if one.name == "llm_request"]
    assert len(router) == 2
    of_client = next(one for one in router if one.trace == TRACE)
    assert of_client.parent == PARENT
    for span in router:
        [child] = [one for one in served if one.trace == span.trace]
        assert child.parent == span.span
        assert child.kind == 2
        # Both clocks are this machine's: the engine's part lies within the router's.
        assert span.start <= child.start <= child.end <= span.end + 50_000_000
    [child] = [one for one in served if one.trace == TRACE]
    facts = knowledge("tracing.yml")["engine"]
    assert child.name == facts["span"]
    assert set(facts["attributes"]) <= set(child.attributes)
    assert child.attributes["gen_ai.usage.completion_tokens"] == 8
    assert "mine" in child.attributes["gen_ai.request.id"]
    # The one that the client did not begin is a trace of its own.
    assert len({span.trace for span in router}) == 2
    assert {one.parent for one in router} == {PARENT, ""}

    resource = child.resource
    assert resource["service.name"] == "tiny"
    assert resource["service.instance.id"] == f"{plan.host}-0"
    assert resource["apiary.gpus"].split() == list(replica.gpus)
    assert resource["apiary.numa_nodes"] == " ".join(map(str, replica.memory_nodes))
    assert PROMPT.encode() not in b"".join([*collector.received.bodies, *grpc.bodies])


def test_what_is_not_sampled_is_in_neither(tmp_path, collector, grpc, engine):
    _plan, replica, _process = engine
    unsampled = {"traceparent": f"00-{'1' * 32}-{PARENT}-00"}
    sampled = {"traceparent": f"00-{'2' * 32}-{PARENT}-01"}
    assert ask(tmp_path, collector, replica, unsampled, sampled) == [200, 200]
    # The later request's spans are there, and so would be those of the earlier one.
    until(lambda: len(of_trace([collector, grpc], "2" * 32)) == 2, 60)
    assert of_trace([collector, grpc], "1" * 32) == []


def test_dead_collectors_cost_no_request_and_hold_up_no_stop(tmp_path, collector, grpc, engine):
    _plan, replica, process = engine
    grpc.stop()
    collector.shutdown()
    collector.server_close()
    assert ask(tmp_path, collector, replica, *[{}] * 5) == [200] * 5
    os.kill(process.pid, signal.SIGTERM)
    # A unit's stop has the drain's time and half a minute more.
    process.wait(timeout=120)
    assert process.returncode in (0, 143, -signal.SIGTERM)
