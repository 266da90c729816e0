# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vllm serve` from its arguments to its exit status, in vLLM's order.

Exit status, as vLLM's: 2 for what the argument parser refuses, 1 for a bad configuration or an
engine that cannot start, 0 after SIGTERM and also after the engine died while serving.
APIARY_DOUBLE_PHASE_SECONDS, _STEP_SECONDS and _WATCHDOG_SECONDS set its times, _ROOT the tree
that holds sys/ and dev/, and _FAITHFUL_HANG=1 makes it keep vLLM's habit of ignoring SIGTERM
while the engine starts.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import socket
import sys
import time
import typing

from engine_double import (
    arguments,
    checkpoint,
    engine,
    environment,
    hardware,
    logs,
    nodes,
    server,
)
from engine_double.client import EngineClient
from engine_double.logs import StartupError, info, warning
from engine_double.metrics import Metrics

DIED = b"d"


def version_data() -> dict[str, typing.Any]:
    """Return the table of the one version this double was built for."""
    (path,) = pathlib.Path(__file__).parent.glob("vllm_*.json")
    data: dict[str, typing.Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def seconds(name: str, default: float) -> float:
    """Return one of the double's own times from the environment."""
    return float(os.environ.get(f"APIARY_DOUBLE_{name}_SECONDS", default))


def main(argv: list[str]) -> int:
    """Run the command and return its exit status."""
    data = version_data()
    settings, given, deprecations = arguments.parse(argv, data)
    if settings["subcommand"] is None:
        print("usage: vllm serve [model_tag] [options] (this is a double of vLLM)")
        return 0
    try:
        return serve(data, settings, given, deprecations)
    except StartupError as refusal:
        logs.refused("api_server.py:0", refusal)
        return 1


def banner(data: dict[str, typing.Any], model: str, given: dict[str, typing.Any]) -> None:
    """Print what runs, and that it is a double."""
    for line in (
        f"vLLM {data['version']} double: a stand-in for hosts without GPUs, not vLLM itself",
        f"version {data['version']}  model {model}",
    ):
        info("api_utils.py:0", line)
    info("api_utils.py:0", f"non-default args: {given}")


def planned(environment: typing.Mapping[str, str]) -> dict[str, typing.Any]:
    """Return the figures of this replica's plan, which a real engine measures; {} without one."""
    try:
        path = f"/etc/apiary/{environment['APIARY_DEPLOYMENT']}/plan.json"
        with open(path, encoding="utf-8") as stream:
            plan = json.load(stream)
        replica = plan["replicas"][int(environment["APIARY_REPLICA"])]
        return {**replica, "weights": plan["memory"]["weights_bytes_per_gpu"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def serve(
    data: dict[str, typing.Any],
    settings: dict[str, typing.Any],
    given: dict[str, typing.Any],
    deprecations: list[str],
) -> int:
    """Start one engine and serve it until it is told to stop or the engine dies."""
    model = settings.get("model_tag") or settings["model"]
    banner(data, model, given)
    for message in deprecations:
        warning("argparse_utils.py:0", message)
    if settings.get("config"):
        # Of YAML only JSON, and of all options only the keys: that is what a supervisor writes.
        try:
            with open(settings["config"], encoding="utf-8") as stream:
                settings["api_key"] = {**json.load(stream)}.pop("api-key")
        except (OSError, ValueError, KeyError):
            message = "--config files with more than keys are beyond this double"
            raise StartupError("ValueError", message) from None
    headless = bool(settings.get("headless"))
    address = settings.get("host") or "0.0.0.0"
    taken = None if headless else server.bind(address, settings["port"])
    config = checkpoint.read_config(model)
    info("model.py:0", f"Resolved architecture: {config['architectures'][0]}")
    environment.check(os.environ, data, bool(settings.get("fail_on_environ_validation")))
    settings.update(
        version=data["version"],
        model=model,
        quantization=checkpoint.check_quantization(config, settings, data),
        max_model_len=checkpoint.max_length(
            config, settings, os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
        ),
        max_num_seqs=settings.get("max_num_seqs") or 1024,
        drain=data["checks"]["drain"],
        shutdown_timeout=settings.get("shutdown_timeout") or 0,
        root=os.environ.get("APIARY_DOUBLE_ROOT", "/"),
        phase_seconds=seconds("PHASE", 0.2),
        step_seconds=seconds("STEP", 0.0),
        # What it logs of itself is the plan's figure times this.
        figures=seconds("FIGURES", 1.0),
        planned=planned(os.environ),
    )
    info("model.py:0", f"Using max model len {settings['max_model_len']}")
    checkpoint.check_parallel(config, settings)
    checkpoint.check_backend(settings, data)
    size = nodes.share(settings)
    gpus = hardware.visible_gpus(settings["root"], os.environ)
    hardware.check_promises(gpus, os.environ)
    if len(gpus) < size:
        raise StartupError(
            "RuntimeError",
            f"{size} GPUs are needed and {len(gpus)} are visible: "
            + (", ".join(gpu.bdf for gpu in gpus) or "No HIP GPUs are available"),
        )
    checkpoint.check_fp8_blocks(config, settings, data)
    # From here on what is one host's counts.
    settings["tensor_parallel_size"] = size
    peers = nodes.meet(settings)
    try:
        if taken is None:
            return nodes.work(settings, gpus[:size])
        return run(data, settings, taken, gpus)
    finally:
        for peer in peers:
            peer.close()


def run(
    data: dict[str, typing.Any],
    settings: dict[str, typing.Any],
    taken: typing.Any,
    gpus: list[hardware.Gpu],
) -> int:
    """Start the engine process, serve, and return the exit status."""
    names = settings.get("served_model_name") or [settings["model"]]
    models = names if isinstance(names, list) else [names]
    metrics = Metrics(data["metrics"], models[0])
    metrics.set("vllm:engine_sleep_state", 1, sleep_state="awake")
    metrics.describe(
        block_size=str(settings.get("block_size") or 16),
        cache_dtype=str(settings["kv_cache_dtype"]),
        gpu_memory_utilization=str(settings["gpu_memory_utilization"]),
        enable_prefix_caching=str(settings.get("enable_prefix_caching") is not False),
        num_gpu_blocks="16384",  # a number; the double has no pool
    )
    # A signal between the fork and its handler waits for the handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, engine.ENDINGS)
    pid, channel = engine.start(settings, gpus)
    client = EngineClient(pid, channel, metrics)
    starting(client)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, engine.ENDINGS)
    if not client.wait_ready():
        client.stop()
        raise StartupError(
            "RuntimeError",
            "Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {'EngineCore': 1}",
        )
    endings, ending = os.pipe()
    # The kernel may hand a signal to any thread, which would not wake this one.
    os.set_blocking(ending, False)
    signal.set_wakeup_fd(ending, warn_on_full_buffer=False)
    for number in engine.ENDINGS:
        signal.signal(number, lambda *_: None)
    client.on_death = lambda: os.write(ending, DIED)
    keys = settings.get("api_key") or os.environ.get("VLLM_API_KEY") or []
    used = ", ".join(sorted(gpu.bdf for gpu in gpus[: settings["tensor_parallel_size"]]))
    state = server.State(
        settings=settings,
        engine=client,
        metrics=metrics,
        models=models,
        api_keys=keys if isinstance(keys, list) else [keys],
        signature=f"Replica on port {settings['port']} of {socket.gethostname()} "
        f"answers from GPUs {used}:",
        created=int(time.time()),
    )
    api = server.Server(taken, state)
    client.serve()
    api.open()
    host, scheme = settings.get("host") or "0.0.0.0", "https" if api.tls else "http"
    info("entry.py:0", f"Starting vLLM server on {scheme}://{host}:{settings['port']}")
    print(f"INFO:     Started server process [{os.getpid()}]", flush=True)
    print("INFO:     Waiting for application startup.", flush=True)
    print("INFO:     Application startup complete.", flush=True)
    # A pipe, because a handler that sets a threading.Event can deadlock with who waits for it.
    if os.read(endings, 1) == DIED:
        linger(endings)
    else:
        drain(api, client, settings)
    api.shutdown()
    client.stop()
    print("INFO:     Application shutdown complete.", flush=True)
    sys.stdout.flush()
    return 0


def starting(client: EngineClient) -> None:
    """Say what a SIGTERM does while the engine starts: end at once, or vLLM's long silence."""

    def leave(*_: typing.Any) -> None:
        client.stop()
        os._exit(1)

    def hang(*_: typing.Any) -> None:
        # vLLM loses the signal here and gives up only when its wait for the engine ends.
        signal.signal(signal.SIGALRM, leave)
        signal.alarm(int(os.environ.get("VLLM_ENGINE_READY_TIMEOUT_S", 600)))

    faithful = os.environ.get("APIARY_DOUBLE_FAITHFUL_HANG") == "1"
    for number in engine.ENDINGS:
        signal.signal(number, hang if faithful else leave)


def linger(endings: int) -> None:
    """Keep a server whose engine is dead for a moment, or for good where the variable says so."""
    forever = os.environ.get("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH") == "1"
    select.select([endings], [], [], None if forever else seconds("WATCHDOG", 2.0))


def drain(api: server.Server, client: EngineClient, settings: dict[str, typing.Any]) -> None:
    """Let requests in flight finish within --shutdown-timeout, and drop what is left."""
    limit = settings["shutdown_timeout"] if settings["drain"] else 0
    api.draining = True
    info("core_client.py:0", f"[shutdown] MPClient: start timeout={limit or 'default'}")
    print("INFO:     Shutting down", flush=True)
    if not (limit and api.wait_idle(limit, client.dead)):
        client.stop()
        api.wait_idle(5)
