# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The EngineCore process: it takes the GPUs, goes through start-up, and emits tokens by steps.

It speaks JSON lines over a socket with the API server. In: {"id", "tokens", "prompt"} for a
request, {"abort": id}. Out: {"ready": {…}}, {"id", "tokens": [word], "finish"} and, after each
step, {"step": tokens computed, "running", "waiting"}.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import select
import signal
import socket
import sys
import typing

from engine_double import hardware, logs
from engine_double.logs import StartupError, info

ENDINGS = (signal.SIGTERM, signal.SIGINT)


class Request(typing.NamedTuple):
    """One sequence: its whole answer is known, each step gives one token of it."""

    name: str
    answer: collections.deque[str]
    finish: str
    prompt_tokens: int


def start(options: dict[str, typing.Any], gpus: list[hardware.Gpu]) -> tuple[int, socket.socket]:
    """Fork the EngineCore process; return its pid and the API server's end of the socket."""
    here, there = socket.socketpair()
    pid = os.fork()
    if pid:
        there.close()
        return pid, here
    here.close()
    status = 1
    try:
        _name_process("VLLM::EngineCore")
        logs.process = "EngineCore"
        # A drain is the API server's to end; systemd may signal the whole control group.
        drains = options["drain"] and options["shutdown_timeout"] > 0
        signal.signal(signal.SIGTERM, signal.SIG_IGN if drains else signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        status = _run(there, options, gpus)
    except StartupError as refusal:
        logs.error("core.py:0", "EngineCore failed to start.")
        logs.refused("core.py:0", refusal)
    finally:
        sys.stdout.flush()
        os._exit(status)


def _name_process(name: str) -> None:
    set_name = 15  # PR_SET_NAME keeps 15 characters, as the real one's /proc/PID/comm shows
    ctypes.CDLL(None).prctl(set_name, name.encode()[:15], 0, 0, 0)


def _run(channel: socket.socket, options: dict[str, typing.Any], gpus: list[hardware.Gpu]) -> int:
    size = options["tensor_parallel_size"]
    used = gpus[:size]
    info(
        "core.py:0",
        f"Initializing a V1 LLM engine (v{options['version']}, a double) with config: "
        f"model='{options['model']}', tensor_parallel_size={size}, "
        f"quantization={options['quantization']}, kv_cache_dtype={options['kv_cache_dtype']}",
    )
    claims = hardware.claim(used, options["root"], options["gpu_memory_utilization"])
    workers = start_workers(channel, size) if size > 1 else []
    pause(channel, options["phase_seconds"])
    for rank, gpu in enumerate(used):
        ep = rank if options["enable_expert_parallel"] else "N/A"
        info(
            "parallel_state.py:0",
            f"rank {rank} in world size {size} is assigned as DP rank 0, "
            f"PP rank 0, TP rank {rank}, EP rank {ep} (GPU {gpu.bdf})",
        )
    tokens = options["max_num_seqs"] * options["max_model_len"]
    planned, factor = options["planned"], options["figures"]
    shown = int((planned.get("kv_tokens") or tokens) * factor)
    if planned.get("attention_backend"):
        name = planned["attention_backend"]
        info("rocm.py:0", f"Using {name} backend out of potential backends: ['{name}'].")
    if planned.get("weights"):
        gib = planned["weights"] * factor / 2**30
        info("gpu_model_runner.py:0", f"Model loading took {gib:.2f} GiB memory and 0.1 seconds")
    for place, message in (
        ("gpu_model_runner.py:0", f"Starting to load model {options['model']}..."),
        ("default_loader.py:0", "Loading safetensors checkpoint shards: 100% Completed"),
        ("default_loader.py:0", f"Loading weights took {options['phase_seconds']:.2f} seconds"),
        ("backends.py:0", "torch.compile takes 0.00 s in total"),
        ("kv_cache_utils.py:0", f"GPU KV cache size: {shown:,} tokens"),
        (
            "kv_cache_utils.py:0",
            f"Maximum concurrency for {options['max_model_len']:,} tokens per "
            f"request: {options['max_num_seqs']:.2f}x",
        ),
        ("gpu_model_runner.py:0", "Graph capturing finished in 0 secs, took 0.00 GiB"),
    ):
        info(place, message)
        pause(channel, options["phase_seconds"])
    info(
        "core.py:0",
        "init engine (profile, create kv cache, warmup model) took "
        f"{5 * options['phase_seconds']:.2f} s",
    )
    _send(channel, {"ready": {"kv_tokens": tokens}})
    _loop(channel, options, workers)
    for holder in claims:
        holder.close()
    return 0


def start_workers(channel: socket.socket, size: int) -> list[int]:
    """Fork a process per rank that ends with this one; return descriptors that tell of its end."""
    ends, held = os.pipe()
    workers = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            os.close(held)
            channel.close()
            _name_process(f"VLLM::Worker_TP{rank}")
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.read(ends, 1)
            os._exit(0)
        workers.append(os.pidfd_open(pid))
    os.close(ends)
    return workers


def pause(channel: socket.socket, seconds: float) -> None:
    """Let a phase take its time, cut short when the API server is gone."""
    if select.select([channel], [], [], seconds)[0]:
        raise StartupError("SystemExit", "the API server is gone")


def _send(channel: socket.socket, message: dict[str, typing.Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _loop(channel: socket.socket, options: dict[str, typing.Any], workers: list[int]) -> None:
    waiting: collections.deque[Request] = collections.deque()
    running: list[Request] = []
    rest = b""
    while True:
        # A step takes step_seconds, and an idle engine waits for its next request.
        busy = bool(running or waiting)
        limit = options["step_seconds"] if busy else None
        ready = select.select([channel, *workers], [], [], limit)[0]
        for rank, worker in enumerate(workers):
            if worker in ready:
                message = (
                    f"Worker proc VllmWorker-{rank} died unexpectedly, shutting down executor."
                )
                logs.error("multiproc_executor.py:0", message)
                os._exit(1)
        if channel in ready:
            received = channel.recv(65536)
            if not received:
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "abort" in message:
                    running = [item for item in running if item.name != message["abort"]]
                    waiting = collections.deque(
                        item for item in waiting if item.name != message["abort"]
                    )
                else:
                    waiting.append(
                        Request(
                            message["id"],
                            collections.deque(message["tokens"]),
                            message["finish"],
                            message["prompt"],
                        )
                    )
        computed = 0
        while waiting and len(running) < options["max_num_seqs"]:
            running.append(waiting.popleft())
            computed += running[-1].prompt_tokens
        for item in running:
            token = item.answer.popleft() if item.answer else ""
            computed += 1
            finish = None if item.answer else item.finish
            _send(channel, {"id": item.name, "tokens": [token], "finish": finish})
        running = [item for item in running if item.answer]
        _send(channel, {"step": computed, "running": len(running), "waiting": len(waiting)})
