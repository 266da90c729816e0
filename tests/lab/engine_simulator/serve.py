# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same model in real time: an HTTP server that streams as vLLM does. A double, it says nothing.

A word is a token. Answers are as long as they may be, whatever `ignore_eos` says.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine_simulator.metrics import Gauges, exposition
from engine_simulator.parameters import Engine, Parameters
from engine_simulator.replica import Replica, Sequence
from engine_simulator.traffic import Sent

_COSTS = ("step", "sequence", "kv_token", "prefill_token", "experts", "image", "jit", "network")
_IMAGE_TOKENS = 256
_HEADERS = "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}\r\n\r\n"


def faster(parameters: Parameters, speed: float) -> Parameters:
    """Return the same deployment, every cost ``speed`` times smaller."""
    costs = {name: getattr(parameters.engine, name) / speed for name in _COSTS}
    engine: Engine = replace(parameters.engine, **costs)
    return replace(parameters, engine=engine)


@dataclass
class Answer:
    """One request being answered; ``blocks`` are hashes of its prompt's whole blocks."""

    requested: dict[str, Any]
    chat: bool
    sent: Sent
    blocks: list[int]
    writer: asyncio.StreamWriter
    done: asyncio.Event = field(default_factory=asyncio.Event)
    given: int = 0

    @property
    def streams(self) -> bool:
        """Say whether the answer is sent piece by piece."""
        return bool(self.requested.get("stream"))


class Serving:
    """One replica at work: its model says when each step ends, the event loop waits for it."""

    def __init__(self, server: Server, parameters: Parameters, seed: int) -> None:
        rng = np.random.default_rng(seed)
        factor = 1 + parameters.engine_run_cov * rng.standard_normal()
        self.server = server
        self.replica = Replica(parameters.engine, factor, parameters.step_cov, rng)
        self.answers: dict[int, Answer] = {}
        self.cached: OrderedDict[int, None] = OrderedDict()  # blocks, the least recently used first
        self.came = asyncio.Event()

    def add(self, answer: Answer) -> None:
        """Take a request; what of its prompt was computed before is in the cache."""
        hits = 0
        for block in answer.blocks:
            if block not in self.cached:
                break
            self.cached.move_to_end(block)
            hits += 1
        sent = answer.sent
        sent.shares, sent.shared = f"prompt-{sent.number}", hits * self.replica.engine.block_size
        self.replica.keep(sent.shares, sent.shared, 0)
        sent.arrival = time.monotonic()
        self.answers[sent.number] = answer
        self.replica.arrive(Sequence(sent), sent.arrival)
        self.came.set()

    async def work(self) -> None:
        """Step for as long as there is something to do; idle otherwise."""
        clock = time.monotonic()
        while True:
            end = self.replica.begin(clock)
            if end is None:
                self.came.clear()
                await self.came.wait()
                clock = time.monotonic()
                continue
            clock = await self._steps()

    async def _steps(self) -> float:
        replica = self.replica
        action = replica.action
        if action is None:
            raise ValueError("nothing was begun")
        at, step = time.monotonic(), 0
        # A request that comes meanwhile shortens the run.
        while step < len(action.ends):
            at = float(action.ends[step])
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            for sequence in replica.running:
                if sequence.joined >= 0:
                    self._token(sequence.sent)
            step += 1
        before = [(sequence, sequence.produced) for sequence, _tokens in action.prefill]
        done = replica.finish()
        for sequence, produced in before:
            if sequence.produced > produced:
                self._keep(self.answers[sequence.sent.number].blocks)
                self._token(sequence.sent)
        for sequence in done:
            replica.forget(sequence.sent.shares or "")
            self.answers.pop(sequence.sent.number).done.set()
        return at

    def _keep(self, blocks: list[int]) -> None:
        """Have the cache know blocks; those used longest ago make room."""
        for block in blocks:
            self.cached[block] = None
            self.cached.move_to_end(block)
        engine = self.replica.engine
        while (
            len(self.cached) > max(0, engine.kv_tokens - self.replica.kv_used) // engine.block_size
        ):
            self.cached.popitem(last=False)

    def _token(self, sent: Sent) -> None:
        answer = self.answers[sent.number]
        answer.given += 1
        if answer.streams and not answer.writer.is_closing():
            self.server.piece(answer)


class Server:
    """The address: HTTP/1.1 in front of all replicas, each request to the least busy one."""

    def __init__(self, parameters: Parameters, model: str, seed: int) -> None:
        self.parameters, self.model = parameters, model
        self.replicas = [
            Serving(self, parameters, seed + index) for index in range(parameters.replicas)
        ]
        self.count = 0
        self.started = time.time()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after another."""
        try:
            while line := await reader.readline():
                length = 0
                while (header := await reader.readline()) not in (b"\r\n", b""):
                    name, _colon, value = header.decode("latin-1").partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = await reader.readexactly(length) if length else b""
                await self._answer(line.decode("latin-1").split()[1], body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        path = path.partition("?")[0]
        try:
            requested = json.loads(body) if body else {}
        except ValueError:
            _reply(writer, {"error": {"message": "no JSON"}}, "400 Bad Request")
            return
        if path in ("/v1/completions", "/v1/chat/completions"):
            await self._complete(requested, path.endswith("chat/completions"), writer)
        elif path == "/v1/models":
            model = {"id": self.model, "object": "model", "max_model_len": 1 << 17}
            _reply(writer, {"object": "list", "data": [model]})
        elif path == "/tokenize":
            words = _words(requested.get("messages") or requested.get("prompt", ""))
            _reply(writer, {"count": len(words), "tokens": words, "max_model_len": 1 << 17})
        elif path == "/version":
            _reply(writer, {"version": self.parameters.version})
        elif path in ("/health", "/ping"):
            _reply(writer, {})
        elif path == "/metrics":
            _send(writer, self._metrics().encode(), "200 OK", "text/plain; version=0.0.4")
        else:
            _reply(writer, {"error": {"message": f"no {path}"}}, "404 Not Found")

    async def _complete(
        self, requested: dict[str, Any], chat: bool, writer: asyncio.StreamWriter
    ) -> None:
        words = _words(requested.get("messages") if chat else requested.get("prompt", ""))
        tokens = int(requested.get("max_completion_tokens") or requested.get("max_tokens") or 16)
        self.count += 1
        sent = Sent(self.count, max(1, len(words)), tokens)
        size = self.parameters.engine.block_size
        blocks, chain = [], 0
        for first in range(0, len(words) - size + 1, size):
            chain = zlib.crc32(repr(words[first : first + size]).encode(), chain)
            blocks.append(chain)
        answer = Answer(requested, chat, sent, blocks, writer)
        if answer.streams:
            _head(writer, "transfer-encoding: chunked", "text/event-stream")
            if chat:
                self.piece(answer, {"role": "assistant", "content": ""})
        await asyncio.sleep(self.parameters.engine.network)
        min(self.replicas, key=lambda serving: serving.replica.load).add(answer)
        await answer.done.wait()
        usage = {"prompt_tokens": sent.prompt, "completion_tokens": tokens}
        usage["total_tokens"] = sent.prompt + tokens
        if not answer.streams:
            text = " word" * tokens
            content = (
                {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            )
            choice = {"index": 0, "finish_reason": "length", **content}
            _reply(writer, {**self._frame(chat, stream=False), "choices": [choice], "usage": usage})
        elif not writer.is_closing():
            if (requested.get("stream_options") or {}).get("include_usage"):
                _event(writer, {**self._frame(chat), "choices": [], "usage": usage})
            _chunk(writer, b"data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    def piece(self, answer: Answer, delta: dict[str, str] | None = None) -> None:
        """Send one piece of a stream: a token, or a chat's role before it."""
        last = answer.given >= answer.sent.output and delta is None
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if last else None}
        if answer.chat:
            choice["delta"] = delta or {"content": " word"}
        else:
            choice["text"] = " word"
        _event(answer.writer, {**self._frame(answer.chat), "choices": [choice]})

    def _frame(self, chat: bool, stream: bool = True) -> dict[str, Any]:
        kind = "chat.completion" if chat else "text_completion"
        return {
            "id": f"simulated-{self.count}",
            "object": f"{kind}.chunk" if chat and stream else kind,
            "created": int(self.started),
            "model": self.model,
        }

    def _metrics(self) -> str:
        full = self.parameters.engine.kv_tokens
        rows = [
            (
                serving.replica.counters,
                Gauges(
                    len(serving.replica.running),
                    len(serving.replica.waiting),
                    serving.replica.kv_used / full,
                ),
            )
            for serving in self.replicas
        ]
        return exposition(rows, self.model, self.started)


def _words(prompt: Any) -> list[int]:
    """Return token ids: of a list of ids itself, of text one a word, of an image many."""
    if isinstance(prompt, list) and all(isinstance(item, int) for item in prompt):
        return list(prompt)
    if isinstance(prompt, str):
        return [1000 + zlib.crc32(word.encode()) % 30000 for word in re.findall(r"\S+", prompt)]
    ids: list[int] = []
    for part in prompt or []:
        if not isinstance(part, dict):
            ids += _words(part)
        elif "content" in part:
            ids += _words(part["content"])
        elif part.get("type") == "text":
            ids += _words(part["text"])
        else:
            ids += [zlib.crc32(json.dumps(part).encode())] * _IMAGE_TOKENS
    return ids


def _head(writer: asyncio.StreamWriter, length: str, kind: str, status: str = "200 OK") -> None:
    writer.write(_HEADERS.format(status=status, kind=kind, length=length).encode())


def _send(writer: asyncio.StreamWriter, body: bytes, status: str, kind: str) -> None:
    _head(writer, f"content-length: {len(body)}", kind, status)
    writer.write(body)


def _reply(writer: asyncio.StreamWriter, document: Any, status: str = "200 OK") -> None:
    _send(writer, json.dumps(document).encode(), status, "application/json")


def _event(writer: asyncio.StreamWriter, document: Any) -> None:
    _chunk(writer, f"data: {json.dumps(document)}\n\n".encode())


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def serve(parameters: Parameters, host: str, port: int, model: str, seed: int) -> None:
    """Serve until SIGTERM or SIGINT; the port is the first line of standard output."""
    server = Server(parameters, model, seed)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    works = [asyncio.create_task(serving.work()) for serving in server.replicas]
    listening = await asyncio.start_server(server.connection, host, port, backlog=4096)
    sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stopped.wait()
    listening.close()
    for work in works:
        work.cancel()
