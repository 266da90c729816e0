# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make spans of HAProxy's log lines and send them to an OpenTelemetry collector.

A router's service: HAProxy writes a datagram for each request, this sends OTLP over HTTP as JSON,
in batches. HAProxy never waits for it. What the collector does not take in time is dropped and
counted; memory is bounded. No span has a prompt, an answer, a key or a client's address.
Source: OpenTelemetry protocol specification 1.3; HTTP semantic conventions 1.29 (server spans).
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

COUNTERS = "apiary_traces.prom"
# The first descriptor that systemd hands on. Source: sd_listen_fds(3).
FIRST_DESCRIPTOR = 3
NO_CONFIGURATION = 78
SERVER, ERROR = 2, 2
_TRACE = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"[0-9a-f]{16}")
_HEADER = re.compile(r"[!-9;-~]+")
_VALUE = re.compile(r"[ -~\t]*")
# RFC 9110 and PATCH; any other word of a client's is one value for all.
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
_LONGEST = 256
# What a line has where HAProxy knows nothing, and what the server is called where there is none.
_NOTHING = ("-", "")
_NO_SERVER = "<NOSRV>"


@dataclass
class Counters:
    """What became of the spans, and of the batches that had them."""

    exported: int = 0
    dropped: int = 0
    malformed: int = 0
    unsampled: int = 0
    sent: int = 0
    failed: int = 0

    def text(self, waiting: int) -> str:
        """Return them in Prometheus' format."""
        lines = ["# TYPE apiary_trace_spans_total counter"]
        for result in ("exported", "dropped", "malformed", "unsampled"):
            count = getattr(self, result)
            lines.append(f'apiary_trace_spans_total{{result="{result}"}} {count}')
        lines.append("# TYPE apiary_trace_exports_total counter")
        lines.append(f'apiary_trace_exports_total{{result="ok"}} {self.sent}')
        lines.append(f'apiary_trace_exports_total{{result="failed"}} {self.failed}')
        lines += ["# TYPE apiary_trace_queue_spans gauge", f"apiary_trace_queue_spans {waiting}"]
        return "".join(f"{line}\n" for line in lines)


def attribute(name: str, value: Any) -> dict[str, Any]:
    """Return one attribute as OTLP's JSON has it; whole numbers are text there."""
    if isinstance(value, int):
        return {"key": name, "value": {"intValue": str(value)}}
    return {"key": name, "value": {"stringValue": str(value)[:_LONGEST]}}


def attributes(pairs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return those that are known."""
    return [attribute(name, value) for name, value in pairs.items() if value not in (None, "")]


def span_of(record: dict[str, Any], servers: dict[str, Any]) -> dict[str, Any]:
    """Return the span of one line of HAProxy's; raise ValueError or KeyError for a wrong one.

    ``servers`` has by deployment and server name the host, replica, address and port.
    """
    if not _TRACE.fullmatch(record["trace"]) or not _SPAN.fullmatch(record["span"]):
        raise ValueError("no trace")
    # From microseconds of the end of the request's headers, and milliseconds of each step.
    began = int(record["began"]) - max(record["ms_request"], 0) * 1000
    status, state = record["status"], record["termination"]
    server = None if record["server"] in (_NO_SERVER, *_NOTHING) else record["server"]
    known = servers.get(record["deployment"], {}).get(server, {})
    method = record["method"] if record["method"] in _METHODS else "_OTHER"
    # A path that nobody serves is a client's word: only what a replica answered names a span.
    name = f"{method} {record['path']}" if server else method
    failed = status >= 500 or (status < 100 and state[:1] not in ("C", "c"))
    span: dict[str, Any] = {
        "traceId": record["trace"],
        "spanId": record["span"],
        "name": name[:_LONGEST],
        "kind": SERVER,
        "startTimeUnixNano": str(began * 1000),
        "endTimeUnixNano": str(max(int(record["ended"]), began) * 1000),
        "attributes": attributes(
            {
                "http.request.method": method,
                "http.response.status_code": status if status >= 100 else None,
                "url.path": record["path"],
                "error.type": (str(status) if status >= 500 else state) if failed else None,
                "apiary.deployment": record["deployment"],
                "apiary.server": server,
                "apiary.host": known.get("host"),
                "apiary.replica": known.get("replica"),
                "server.address": known.get("address"),
                "server.port": known.get("port"),
                "apiary.request_id": record["request"],
                "apiary.session": None if record["session"] in _NOTHING else record["session"],
                "haproxy.termination_state": state,
                "haproxy.retries": int(record["retries"]),
                "haproxy.queued_before": record["queued_before"],
                "haproxy.bytes_in": record["bytes_in"],
                "haproxy.bytes_out": record["bytes_out"],
            }
        ),
        "events": events(record, began),
        "status": {"code": ERROR, "message": f"{status} {state}"} if failed else {},
    }
    if _SPAN.fullmatch(record["parent"]):
        span["parentSpanId"] = record["parent"]
    return span


def events(record: dict[str, Any], began: int) -> list[dict[str, Any]]:
    """Return the steps that the request has passed; a step not reached has -1 milliseconds."""
    steps = (
        ("request received", "ms_request"),
        ("out of the queue", "ms_queue"),
        ("connected to replica", "ms_connect"),
        ("first byte of answer", "ms_first_byte"),
    )
    found, at = [], began
    for name, key in steps:
        if record[key] < 0:
            break
        at += record[key] * 1000
        found.append({"name": name, "timeUnixNano": str(at * 1000)})
    return found


def document(spans: list[dict[str, Any]], resource: dict[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest as JSON."""
    scope = {"scope": {"name": "apiary.router"}, "spans": spans}
    whole = {"resource": {"attributes": attributes(resource)}, "scopeSpans": [scope]}
    return json.dumps({"resourceSpans": [whole]}, separators=(",", ":")).encode()


def headers_from(directory: str | None) -> dict[str, str]:
    """Return the collector's headers from the credential; raise ValueError, without the values."""
    path = os.path.join(directory or "", "headers")
    if not directory or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as stream:
        told = json.load(stream)
    for name, value in told.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"the header {name!r} has letters that HTTP does not take")
    return dict(told)


@dataclass
class Collector:
    """Where batches go."""

    endpoint: str
    headers: dict[str, str] = field(default_factory=dict)
    certificate: str | None = None
    timeout: float = 10

    def post(self, body: bytes) -> int:
        """Send one batch and return the answer's status; raise OSError or HTTPException."""
        url = urlsplit(self.endpoint)
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=self.certificate)
            connection = http.client.HTTPSConnection(
                url.hostname or "", url.port, timeout=self.timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(
                url.hostname or "", url.port, timeout=self.timeout
            )
        try:
            headers = {**self.headers, "Content-Type": "application/json"}
            connection.request("POST", url.path or "/", body, headers)
            answer = connection.getresponse()
            answer.read(_LONGEST)
            return answer.status
        finally:
            connection.close()


class Exporter:
    """The queue between the thread that reads lines and the one that sends batches."""

    def __init__(
        self,
        told: dict[str, Any],
        collector: Collector,
        directory: str | None = None,
        say: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self.told, self.collector, self.directory, self.say = told, collector, directory, say
        self.resource = {
            "service.name": told["service"],
            "service.namespace": "apiary",
            "service.instance.id": socket.gethostname(),
            "host.name": socket.gethostname(),
        }
        self.counters = Counters()
        self._queue: collections.deque[dict[str, Any]] = collections.deque()
        self._more = threading.Condition()
        self._ending = threading.Event()
        self._sender = threading.Thread(target=self._run, daemon=True)
        self._told_at = 0.0

    def start(self) -> None:
        """Begin to send; the counters are there from now on."""
        self.write_counters()
        self._sender.start()

    def stop(self, seconds: float) -> None:
        """Send what waits, each batch once, and write the counters; at most so long."""
        self._ending.set()
        with self._more:
            self._more.notify()
        self._sender.join(seconds)
        self.write_counters()

    def take(self, line: bytes) -> None:
        """Queue the span of one line, unless it is not to be sampled or there is no room."""
        try:
            record = json.loads(line)
            if record["sampled"] != "01":
                self.counters.unsampled += 1
                return
            span = span_of(record, self.told["servers"])
        except (ValueError, KeyError, TypeError, AttributeError):
            self.counters.malformed += 1
            return
        with self._more:
            if len(self._queue) >= self.told["queue_spans"]:
                self.counters.dropped += 1
                return
            self._queue.append(span)
            if len(self._queue) >= self.told["batch_spans"]:
                self._more.notify()

    def _batch(self) -> list[dict[str, Any]]:
        """Wait until a batch is full, or some time; return what there is."""
        with self._more:
            if len(self._queue) < self.told["batch_spans"] and not self._ending.is_set():
                self._more.wait(self.told["delay_seconds"])
            count = min(len(self._queue), self.told["batch_spans"])
            return [self._queue.popleft() for _number in range(count)]

    def _run(self) -> None:
        written = time.monotonic()
        while True:
            spans = self._batch()
            if spans:
                self._send(spans)
            if time.monotonic() - written >= self.told["counters_seconds"]:
                self.write_counters()
                written = time.monotonic()
            if not spans and self._ending.is_set():
                return

    def _send(self, spans: list[dict[str, Any]]) -> None:
        """Send a batch, again after a pause where that may help; else drop and count it."""
        body = document(spans, self.resource)
        reason = ""
        for attempt in range(self.told["attempts"]):
            # Each pause is twice as long; a service that ends does not wait.
            if attempt and self._ending.wait(2 ** (attempt - 1)):
                break
            try:
                status = self.collector.post(body)
            except (OSError, http.client.HTTPException) as failure:
                reason = f"{type(failure).__name__}: {failure}"
                continue
            if 200 <= status < 300:
                self.counters.exported += len(spans)
                self.counters.sent += 1
                return
            reason = f"it answers {status}"
            if status not in self.told["retryable"]:
                break
        self.counters.dropped += len(spans)
        self.counters.failed += 1
        # The journal hears of a collector that is away once a minute, not with every batch.
        if time.monotonic() - self._told_at >= 60 or not self._told_at:
            self._told_at = time.monotonic()
            where, lost = self.collector.endpoint, self.counters.dropped
            self.say(f"<4>{lost} spans dropped until now; {where}: {reason}\n")

    def write_counters(self) -> None:
        """Put the counters where node_exporter reads them, in one step."""
        if self.directory is None:
            return
        path = os.path.join(self.directory, COUNTERS)
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            stream.write(self.counters.text(len(self._queue)))
        os.replace(f"{path}.new", path)


def listening(port: int | None, size: int) -> socket.socket:
    """Return the socket that systemd hands on, or one of our own at ``port``."""
    if port is None and os.environ.get("LISTEN_PID") == str(os.getpid()):
        return socket.socket(fileno=FIRST_DESCRIPTOR)
    if port is None:
        raise ValueError("systemd handed on no socket: start apiary-traces.socket")
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    own.bind(("127.0.0.1", port))
    return own


def serve(exporter: Exporter, lines: socket.socket, ended: socket.socket) -> None:
    """Take lines until ``ended`` can be read, then what has come already."""
    longest = exporter.told["line_bytes"]
    lines.setblocking(False)
    while True:
        ready = select.select([lines, ended], [], [])[0]
        if ended in ready:
            break
        with contextlib.suppress(BlockingIOError):
            exporter.take(lines.recv(longest))
    try:
        while True:
            exporter.take(lines.recv(longest))
    except BlockingIOError:
        return


def main(arguments: list[str]) -> int:
    """Run the service: `traces.py CONFIGURATION [PORT]`; return its exit status."""

    try:
        with open(arguments[0], encoding="utf-8") as stream:
            told = json.load(stream)
        headers = headers_from(os.environ.get("CREDENTIALS_DIRECTORY"))
        port = int(arguments[1]) if len(arguments) > 1 else None
        lines = listening(port, told["socket_bytes"])
    except (OSError, ValueError) as failure:
        sys.stderr.write(f"<3>{failure}\n")
        return NO_CONFIGURATION
    collector = Collector(
        told["endpoint"], headers, told["certificate"], float(told["timeout_seconds"])
    )
    exporter = Exporter(told, collector, os.environ.get("RUNTIME_DIRECTORY"))
    # A signal that raised would lose the line that is being taken.
    ended, wake = socket.socketpair()

    def stop(_number: int, _frame: object) -> None:
        wake.send(b"1")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    exporter.start()
    serve(exporter, lines, ended)
    exporter.stop(float(told["timeout_seconds"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
