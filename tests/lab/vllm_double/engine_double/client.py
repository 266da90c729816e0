# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API server's side of the EngineCore process: requests out, tokens back, and its death."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import threading
import time
import typing

from engine_double.logs import error
from engine_double.metrics import Metrics


class EngineDeadError(Exception):
    """The EngineCore process is gone; vLLM answers 500 to what was in flight."""


class EngineClient:
    """One engine process; ``dead`` is set when it ends without being asked to."""

    def __init__(self, pid: int, channel: socket.socket, metrics: Metrics) -> None:
        self.pid = pid
        self.dead = threading.Event()
        self.metrics = metrics
        self._channel = channel
        self._lock = threading.Lock()
        # Apart from _lock, so that output is taken while a long request is being sent.
        self._writing = threading.Lock()
        self._queues: dict[str, queue.Queue[typing.Any]] = {}
        self._stopping = False
        self.on_death: typing.Callable[[], typing.Any] = int

    def wait_ready(self) -> bool:
        """Block until the engine reports ready (True) or ends (False); read nothing further."""
        received = b""
        while not received.endswith(b"\n"):
            part = self._channel.recv(1)
            if not part:
                return False
            received += part
        return "ready" in json.loads(received)

    def serve(self) -> None:
        """Start taking the engine's output."""
        threading.Thread(target=self._read, name="output_handler", daemon=True).start()

    def _read(self) -> None:
        with self._channel.makefile("rb") as stream:
            try:
                for line in stream:
                    self._take(json.loads(line))
            except (OSError, ValueError):
                pass
        with self._lock:
            waiting = list(self._queues.values())
            self.dead.set()
        if not self._stopping:
            error("async_llm.py:0", "AsyncLLM output_handler failed.")
            error(
                "async_llm.py:0",
                "vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
                "encountered an issue. See stack trace (above) for the root cause.",
            )
        for item in waiting:
            item.put(None)
        self.on_death()

    def _take(self, message: dict[str, typing.Any]) -> None:
        if "step" in message:
            self.metrics.observe("vllm:iteration_tokens_total", message["step"])
            self.metrics.set("vllm:num_requests_running", message["running"])
            self.metrics.set("vllm:num_requests_waiting", message["waiting"])
            self.metrics.set(
                "vllm:num_requests_waiting_by_reason", message["waiting"], reason="capacity"
            )
            return
        with self._lock:
            target = self._queues.get(message["id"])
        if target is not None:
            target.put(message)

    def generate(
        self, name: str, prompt_tokens: int, tokens: list[str], finish: str, asked: int
    ) -> typing.Iterator[tuple[str, str | None]]:
        """Yield (token, finish reason or None) as the engine makes them; raise EngineDeadError."""
        mine: queue.Queue[typing.Any] = queue.Queue()
        began = time.monotonic()
        with self._lock:
            if self.dead.is_set():
                raise EngineDeadError
            self._queues[name] = mine
        self._write({"id": name, "tokens": tokens, "finish": finish, "prompt": prompt_tokens})
        first = last = None
        made, reason = 0, "abort"
        try:
            while reason == "abort":
                message = mine.get()
                if message is None:
                    reason = "error"
                    raise EngineDeadError
                now = time.monotonic()
                made += 1
                self.metrics.add("vllm:generation_tokens")
                if last is None:
                    first = now
                    self._prefilled(prompt_tokens)
                    self.metrics.observe("vllm:time_to_first_token_seconds", now - began)
                else:
                    self.metrics.observe("vllm:inter_token_latency_seconds", now - last)
                    self.metrics.observe("vllm:time_per_output_token_seconds", now - last)
                last = now
                if message["finish"]:
                    reason = message["finish"]
                    self._finished(began, first, now, prompt_tokens, made, asked)
                    # Counted before the caller sees the end, so that a scrape after it agrees.
                    self.metrics.add("vllm:request_success", finished_reason=reason)
                yield message["tokens"][0], message["finish"]
        finally:
            with self._lock:
                self._queues.pop(name, None)
            if reason == "abort":
                self._write({"abort": name})
            if reason in ("abort", "error"):
                self.metrics.add("vllm:request_success", finished_reason=reason)

    def _prefilled(self, tokens: int) -> None:
        """Count a prompt with its first output (IterationStats.update_from_output)."""
        self.metrics.add("vllm:prompt_tokens", tokens)
        self.metrics.add("vllm:prompt_tokens_by_source", tokens, source="local_compute")
        for series in ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"):
            self.metrics.add(series, tokens)

    def _finished(
        self,
        began: float,
        first: float | None,
        end: float,
        prompt: int,
        made: int,
        asked: int,
    ) -> None:
        first = end if first is None else first
        observe = self.metrics.observe
        observe("vllm:request_prompt_tokens", prompt)
        observe("vllm:request_prefill_kv_computed_tokens", prompt)
        observe("vllm:request_generation_tokens", made)
        observe("vllm:request_max_num_generation_tokens", made)
        observe("vllm:request_params_max_tokens", asked)
        observe("vllm:request_params_n", 1)
        observe("vllm:request_num_preemptions", 0)
        observe("vllm:e2e_request_latency_seconds", end - began)
        observe("vllm:request_queue_time_seconds", 0.0)
        observe("vllm:request_inference_time_seconds", end - began)
        observe("vllm:request_prefill_time_seconds", first - began)
        observe("vllm:request_decode_time_seconds", end - first)
        observe("vllm:request_time_per_output_token_seconds", (end - first) / max(1, made - 1))

    def _write(self, message: dict[str, typing.Any]) -> None:
        with self._writing, contextlib.suppress(OSError):  # a dead engine is seen by _read
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def stop(self) -> None:
        """End the engine process and wait for it; what is in flight gets the error."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
