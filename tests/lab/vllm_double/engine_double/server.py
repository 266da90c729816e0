# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTTP server: vLLM's routes, bound early and silent until the engine is ready."""

from __future__ import annotations

import hmac
import http.server
import json
import os
import socket
import ssl
import threading
import time
import typing

from engine_double import protocol
from engine_double.client import EngineClient, EngineDeadError
from engine_double.logs import StartupError
from engine_double.metrics import Metrics
from engine_double.protocol import ApiError

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
ROUTES = {
    "/health": ("GET",),
    "/ping": ("GET", "POST"),
    "/version": ("GET",),
    "/load": ("GET",),
    "/metrics": ("GET",),
    "/tokenize": ("POST",),
    "/v1/models": ("GET",),
    "/v1/completions": ("POST",),
    "/v1/chat/completions": ("POST",),
}
# prometheus-fastapi-instrumentator leaves these out of http_requests_total, as vLLM tells it to.
UNCOUNTED = ("/health", "/ping", "/version", "/load", "/metrics")


def known_answer(prompt: str) -> str | None:
    """Return what the file APIARY_DOUBLE_ANSWERS has as the answer to a question, if it has one."""
    try:
        with open(os.environ["APIARY_DOUBLE_ANSWERS"], encoding="utf-8") as stream:
            answers = json.load(stream)
    except (KeyError, OSError):
        return None
    return answers.get(prompt.removesuffix("\nA:").rpartition("Q: ")[2])


class State(typing.NamedTuple):
    """What every request needs of the server."""

    settings: dict[str, typing.Any]
    engine: EngineClient
    metrics: Metrics
    models: list[str]
    api_keys: list[str]
    signature: str
    created: int


def bind(host: str, port: int) -> socket.socket:
    """Take the port before weights are loaded, without listening: callers are refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as problem:
        raise StartupError("OSError", str(problem)) from None
    return taken


class Server(http.server.ThreadingHTTPServer):
    """One engine's API server; ``drain`` and ``in_flight`` serve its shutdown."""

    daemon_threads = True
    tls: ssl.SSLContext | None = None
    request_queue_size = 512

    def __init__(self, taken: socket.socket, state: State) -> None:
        super().__init__(taken.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = taken
        files = [state.settings.get(name) for name in ("ssl_certfile", "ssl_keyfile")]
        if any(files):
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*files)
        self.state = state
        self.draining = False
        self.in_flight = 0
        self.idle = threading.Condition()

    def get_request(self) -> tuple[typing.Any, typing.Any]:
        """Take a connection; its own thread shakes hands, which a client may delay."""
        plain, address = super().get_request()
        if self.tls is None:
            return plain, address
        plain.settimeout(10)
        return self.tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def finish_request(self, request: typing.Any, client_address: typing.Any) -> None:
        if self.tls is not None:
            request.do_handshake()
            request.settimeout(None)
        super().finish_request(request, client_address)

    def open(self) -> None:
        """Start to answer."""
        try:
            self.server_activate()
        except OSError as problem:  # two processes may bind before either listens
            raise StartupError("OSError", str(problem)) from None
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def wait_idle(self, seconds: float, unless: threading.Event | None = None) -> bool:
        """Wait until no completion is in flight or the time is over; say whether it is idle."""

        def done() -> bool:
            return self.in_flight == 0 or (unless is not None and unless.is_set())

        with self.idle:
            self.idle.wait_for(done, seconds)
            return self.in_flight == 0

    def handle_error(self, request: typing.Any, client_address: typing.Any) -> None:
        """Say nothing of clients that hang up."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "uvicorn"
    sys_version = ""

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def log_request(self, code: typing.Any = "-", size: typing.Any = "-") -> None:
        settings = self.server.state.settings
        quiet = (settings.get("disable_access_log_for_endpoints") or "").split(",")
        if not settings.get("disable_uvicorn_access_log") and self.path not in quiet:
            words = http.HTTPStatus(code).phrase
            client = "{}:{}".format(*self.client_address[:2])
            print(f'INFO:     {client} - "{self.requestline}" {int(code)} {words}', flush=True)

    def log_error(self, format: str, *args: typing.Any) -> None:
        """Say nothing: log_request has the line."""

    def _route(self, method: str) -> None:
        path = self.path.partition("?")[0]
        length = int(self.headers.get("Content-Length") or 0)
        payload = self.rfile.read(length) if length else b""
        status = 500
        try:
            status = self._answer(method, path, payload)
        except ApiError as refusal:
            status = self._json(refusal.status, refusal.body)
        except EngineDeadError:
            status = self._json(500, ApiError(500, ENGINE_DEAD, "InternalServerError").body)
        finally:
            if path not in UNCOUNTED:
                handler = path if method in ROUTES.get(path, ()) else "none"
                self.server.state.metrics.request(handler, method, status)

    def _answer(self, method: str, path: str, payload: bytes) -> int:
        state = self.server.state
        if path not in ROUTES:
            return self._json(404, {"detail": "Not Found"})
        if method not in ROUTES[path]:
            return self._json(405, {"detail": "Method Not Allowed"})
        if path.startswith("/v1") and not self._authorized():
            return self._json(401, {"error": "Unauthorized"})
        if path in ("/health", "/ping"):
            return self._send(503 if state.engine.dead.is_set() else 200, b"", "")
        if path == "/version":
            return self._json(200, {"version": state.settings["version"]})
        if path == "/load":
            counted = state.settings.get("enable_server_load_tracking")
            return self._json(200, {"server_load": self.server.in_flight if counted else 0})
        if path == "/metrics":
            page = state.metrics.text().encode()
            return self._send(200, page, "text/plain; version=1.0.0; charset=utf-8")
        if path == "/v1/models":
            settings = state.settings
            return self._json(
                200,
                protocol.model_list(
                    state.models, settings["model"], settings["max_model_len"], state.created
                ),
            )
        body = self._read_json(payload)
        if path == "/tokenize":
            tokens = protocol.words(str(body.get("prompt", "")))
            ids = [sum(token.encode()) % 50000 for token in tokens]
            limit = state.settings["max_model_len"]
            return self._json(200, {"count": len(ids), "max_model_len": limit, "tokens": ids})
        return self._complete(body, path == "/v1/chat/completions")

    def _authorized(self) -> bool:
        keys = self.server.state.api_keys
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return not keys or any(hmac.compare_digest(given, key) for key in keys)

    def _read_json(self, payload: bytes) -> typing.Any:
        try:
            return json.loads(payload)
        except ValueError as problem:
            message = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': '{problem}'}}"
            raise ApiError(400, message, "Bad Request", "body") from None

    def _complete(self, body: typing.Any, chat: bool) -> int:
        state = self.server.state
        job = protocol.read(body, chat, state.models, state.settings["max_model_len"])
        if self.server.draining:
            message = "cannot schedule new futures after shutdown"  # measured on 0.32.0
            raise ApiError(500, message, "InternalServerError")
        with self.server.idle:
            self.server.in_flight += 1
        try:
            return self._stream(job) if job.stream else self._whole(job)
        finally:
            with self.server.idle:
                self.server.in_flight -= 1
                self.server.idle.notify_all()

    def _tokens(
        self, job: protocol.Job
    ) -> typing.Generator[tuple[int, str, str | None], None, None]:
        engine, index = self.server.state.engine, 0
        for prompt in job.prompts:
            answer = known_answer(prompt.text)
            if answer is None:
                answer = f"{self.server.state.signature} you said: {prompt.text or '(token ids)'}"
            tokens, finish = protocol.plan_answer(job, answer)
            for _ in range(job.answers):
                name = f"{job.name}-{index}"
                made = engine.generate(name, prompt.tokens, tokens, finish, job.max_tokens)
                for token, ended in made:
                    yield index, token, ended
                index += 1

    def _fingerprint(self) -> str:
        return f"vllm-{self.server.state.settings['version']}-double"

    def _whole(self, job: protocol.Job) -> int:
        created, made = int(time.time()), 0
        texts: dict[int, list[str]] = {}
        ends: dict[int, str] = {}
        for index, token, finish in self._tokens(job):
            texts.setdefault(index, []).append(token)
            made += 1
            if finish:
                ends[index] = finish
        pairs = [("".join(texts[index]), ends[index]) for index in sorted(texts)]
        body = protocol.whole_answer(job, created, pairs, made, self._fingerprint())
        return self._json(200, body)

    def _stream(self, job: protocol.Job) -> int:
        created, made, opened = int(time.time()), 0, -1
        tokens = self._tokens(job)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for index, token, finish in tokens:
                if job.chat and index != opened:
                    self._event(json.dumps(protocol.first_chunk(job, created, index)))
                    opened = index
                made += 1
                self._event(json.dumps(protocol.chunk(job, created, index, token, finish)))
            if job.usage_at_end:
                closing = protocol.last_chunk(job, created, made, self._fingerprint())
                self._event(json.dumps(closing))
        except EngineDeadError:
            self._event(json.dumps(ApiError(500, ENGINE_DEAD, "InternalServerError").body))
        except OSError:  # the client hung up: closing the iterator aborts the request
            tokens.close()
            self.close_connection = True
            return 200
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        return 200

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, status: int, body: typing.Any) -> int:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return self._send(status, text.encode(), "application/json")

    def _send(self, status: int, payload: bytes, kind: str) -> int:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
        return status
