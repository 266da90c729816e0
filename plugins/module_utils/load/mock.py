# SPDX-License-Identifier: GPL-3.0-or-later

"""A server that computes nothing and answers when it was told to: what a client says of it is its
own error.

    python -m load.mock [--host 127.0.0.1] [--port 0] [--ttft 0.1] [--itl 0.03] [--model NAME]

It prints its port, and serves until SIGTERM, or until stdin ends if that is a pipe. It answers what
`vllm bench serve` and the builtin client ask: streams of exactly max_tokens chunks with usage.
GET /stats tells how late it was itself.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import select
import signal
import socket
import stat
import sys
import zlib
from functools import partial
from typing import Any

from .http import Loop, clock

_READ = 1 << 16
_BACKLOG = 4096
_SAMPLES = 100_000
_WORD_IDS = 1000, 30_000
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def framed(*texts: str) -> bytes:
    """Return events, each in a chunk of HTTP of its own."""
    return b"".join(
        b"%x\r\ndata: %s\n\n\r\n" % (len(text.encode()) + 8, text.encode()) for text in texts
    )


def chunk(chat: bool, model: str, **values: Any) -> str:
    """Return one chunk as vLLM writes it, without spaces."""
    document = {
        "id": "cmpl-00000000000000000000000000000000",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1700000000,
        "model": model,
        **values,
    }
    return json.dumps(document, separators=(",", ":"))


def token_chunk(chat: bool, model: str, end: bool, ids: bool) -> bytes:
    """Return the chunk of one token."""
    choice: dict[str, Any] = {"index": 0}
    choice.update({"delta": {"content": " word"}} if chat else {"text": " word"})
    choice.update(logprobs=None, finish_reason="length" if end else None, stop_reason=None)
    if ids:
        choice["token_ids"] = [_WORD_IDS[0]]
    return framed(chunk(chat, model, choices=[choice]))


def ids_of(text: str) -> list[int]:
    """Return a token id for each word."""
    low, high = _WORD_IDS
    return [low + zlib.crc32(word.encode()) % (high - low) for word in text.split()]


def count_of(prompt: Any) -> int:
    """Return how many tokens a prompt has: ids as they are, else words; of a chat, 4 more each."""
    if isinstance(prompt, str):
        return len(prompt.split())
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return len(prompt or ())
    total = 0
    for message in prompt:
        content = message.get("content", "") if isinstance(message, dict) else message
        parts = content if isinstance(content, list) else [{"text": content}]
        total += 4 + sum(len(str(part.get("text", "")).split()) for part in parts)
    return total


class Stream:
    """One answer that is being streamed."""

    __slots__ = ("chunk", "client", "due", "end", "first", "left")

    def __init__(self, client: Client, due: float, first: bytes, one: bytes, end: bytes) -> None:
        self.client, self.due, self.first, self.chunk, self.end = client, due, first, one, end
        self.left = 0


class Client:
    """One connection of a client."""

    __slots__ = ("buffer", "number", "out", "socket")

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.number = connection, connection.fileno()
        self.buffer, self.out = b"", b""


class Mock:
    """The server: one thread, one loop, a timer for what is due next of each answer."""

    def __init__(self, host: str, port: int, ttft: float, itl: float, model: str) -> None:
        self._ttft, self._itl, self._model = ttft, itl, model
        self._loop = Loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listening.setblocking(False)
        self._loop.watch(self._listening.fileno(), select.EPOLLIN, self._accept)
        self.port: int = self._listening.getsockname()[1]
        self._clients: set[Client] = set()
        self._late: collections.deque[float] = collections.deque(maxlen=_SAMPLES)
        self._requests = 0
        self._ended = False
        # A chunk differs by these alone; made once, so that a token costs one system call.
        self._chunks = {
            (chat, end, ids): token_chunk(chat, model, end, ids)
            for chat in (False, True)
            for end in (False, True)
            for ids in (False, True)
        }

    def watch(self, number: int) -> None:
        """End when a file descriptor does."""

        def read(_events: int, _now: float) -> None:
            self._ended = not os.read(number, 4096)

        self._loop.watch(number, select.EPOLLIN | select.EPOLLHUP, read)

    def serve(self) -> None:
        """Answer until what it watches ends."""
        self._loop.run(lambda: self._ended)
        for client in list(self._clients):
            self._drop(client)
        self._listening.close()
        self._loop.close()

    def _begin(self, stream: Stream) -> None:
        """Send a stream's first token, which may be all of it."""
        self._write(stream.client, stream.first if stream.left else stream.first + stream.end)
        self._late.append(clock() - stream.due)
        self._await_next(stream)

    def _next(self, stream: Stream) -> None:
        stream.left -= 1
        self._write(stream.client, stream.chunk if stream.left else stream.end)
        self._await_next(stream)

    def _await_next(self, stream: Stream) -> None:
        if stream.left and stream.client.number >= 0:
            stream.due += self._itl
            self._loop.at(stream.due, partial(self._next, stream))

    def _write(self, client: Client, data: bytes) -> None:
        if client.number < 0:
            return
        if client.out:
            client.out += data
            return
        try:
            sent = client.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        if sent < len(data):
            client.out = data[sent:]
            self._watch(client, select.EPOLLIN | select.EPOLLOUT)

    def _watch(self, client: Client, events: int) -> None:
        self._loop.watch(client.number, events, partial(self._ready, client))

    def _ready(self, client: Client, events: int, now: float) -> None:
        if events & select.EPOLLOUT and client.out:
            data, client.out = client.out, b""
            self._watch(client, select.EPOLLIN)
            self._write(client, data)
        if events & ~select.EPOLLOUT and client.number >= 0:
            try:
                data = client.socket.recv(_READ)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                client.buffer += data
                self._read(client, now)
            else:
                self._drop(client)

    def _accept(self, _events: int, _now: float) -> None:
        while True:
            try:
                connection, _address = self._listening.accept()
            except OSError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = Client(connection)
            self._clients.add(client)
            self._watch(client, select.EPOLLIN)

    def _drop(self, client: Client) -> None:
        if client.number >= 0:
            self._loop.forget(client.number)
            self._clients.discard(client)
            client.socket.close()
            client.number = -1

    def _read(self, client: Client, now: float) -> None:
        """Answer each whole request in the buffer."""
        while client.number >= 0:
            end = client.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = client.buffer[:end].decode("latin-1").split("\r\n")
            length = 0
            for line in head[1:]:
                name, _colon, value = line.partition(":")
                if name.lower() == "content-length" and value.strip().isdigit():
                    length = int(value)
            if len(client.buffer) < end + 4 + length:
                return
            body = client.buffer[end + 4 : end + 4 + length]
            client.buffer = client.buffer[end + 4 + length :]
            path = (head[0].split() + [""] * 2)[1].partition("?")[0]
            try:
                document = json.loads(body) if body else {}
            except ValueError:
                document = None
            if isinstance(document, dict):
                self._answer(client, path, document, now)
            else:
                self._reply(client, {"error": {"message": "no JSON object"}}, "400 Bad Request")

    def _answer(self, client: Client, path: str, requested: dict[str, Any], now: float) -> None:
        if path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(client, path.endswith("chat/completions"), requested, now)
        elif path == "/v1/models":
            model = {"id": self._model, "object": "model", "max_model_len": 1 << 20}
            self._reply(client, {"object": "list", "data": [model]})
        elif path == "/tokenize":
            ids = ids_of(str(requested.get("prompt", "")))
            count = count_of(requested["messages"]) if "messages" in requested else len(ids)
            self._reply(client, {"count": count, "max_model_len": 1 << 20, "tokens": ids})
        elif path == "/version":
            self._reply(client, {"version": "mock"})
        elif path == "/stats":
            self._reply(client, self.stats())
        elif path in ("/health", "/ping"):
            self._reply(client, {})
        else:
            self._reply(client, {"error": {"message": f"no {path}"}}, "404 Not Found")

    def stats(self) -> dict[str, Any]:
        """Return how many streams there were, and how late their first chunks left, in seconds."""
        late = sorted(self._late)
        place = min(len(late) - 1, int(0.9 * len(late)))
        return {
            "requests": self._requests,
            "late_p90": late[place] if late else None,
            "late_max": late[-1] if late else None,
        }

    def _generate(self, client: Client, chat: bool, requested: dict[str, Any], now: float) -> None:
        model = self._model
        self._requests += 1
        tokens = int(requested.get("max_completion_tokens") or requested.get("max_tokens") or 16)
        prompt = count_of(requested.get("messages") if chat else requested.get("prompt"))
        usage = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + tokens,
            "completion_tokens": tokens,
        }
        ids = bool(requested.get("return_token_ids"))
        one, final = self._chunks[chat, False, ids], self._chunks[chat, True, ids]
        if not requested.get("stream"):
            text = " word" * tokens
            choice = {"message": {"content": text}} if chat else {"text": text}
            answer = json.loads(chunk(chat, model, choices=[choice], usage=usage))
            stream = Stream(client, now + self._ttft + self._itl * (tokens - 1), b"", b"", b"")
            stream.first = reply(answer)
            self._loop.at(stream.due, partial(self._begin, stream))
            return
        role = framed(chunk(chat, model, choices=[{"index": 0, "delta": {"role": "assistant"}}]))
        end = b""
        if (requested.get("stream_options") or {}).get("include_usage"):
            end = framed(chunk(chat, model, choices=[], usage=usage))
        end += framed("[DONE]") + b"0\r\n\r\n"
        first = _HEAD + (role if chat else b"") + (one if tokens > 1 else final)
        stream = Stream(client, now + self._ttft, first, one, final + end if tokens > 1 else end)
        stream.left = tokens - 1
        self._loop.at(stream.due, partial(self._begin, stream))

    def _reply(self, client: Client, document: Any, status: str = "200 OK") -> None:
        self._write(client, reply(document, status))


def reply(document: Any, status: str = "200 OK") -> bytes:
    """Return a whole JSON answer."""
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def main(arguments: list[str]) -> int:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description="A server that answers when it was told to.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft", type=float, default=0.1, help="seconds to the first token")
    parser.add_argument("--itl", type=float, default=0.03, help="seconds between tokens")
    parser.add_argument("--model", default="mock")
    chosen = parser.parse_args(arguments)
    mock = Mock(chosen.host, chosen.port, chosen.ttft, chosen.itl, chosen.model)

    def end(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        mock.watch(0)
    sys.stdout.write(f"{mock.port}\n")
    sys.stdout.flush()
    mock.serve()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
