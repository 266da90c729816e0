# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for an OpenTelemetry collector: OTLP over HTTP, as JSON and as protobuf.

Field numbers are those of opentelemetry-proto 1.3 (trace/v1/trace.proto, common/v1/common.proto).
"""

from __future__ import annotations

import http.server
import json
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Span:
    """What the tests look at; times are nanoseconds of the epoch."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    status: int = 0
    events: tuple[str, ...] = ()


@dataclass
class Received:
    """What a collector got; ``answers`` are the statuses it gives first, then always 200."""

    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)


class Collector(http.server.ThreadingHTTPServer):
    """A collector on loopback; use it in a `with`, which ends it."""

    daemon_threads = True

    def __init__(self, port: int = 0, answers: list[int] | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.received = Received(answers=list(answers or []))
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    @property
    def spans(self) -> list[Span]:
        return self.received.spans

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") in ("gzip", "deflate"):
            body = zlib.decompress(body, 47)
        received = self.server.received
        status = received.answers.pop(0) if received.answers else 200
        if self.path != "/v1/traces":
            status = 404
        if status == 200:
            received.headers.append(dict(self.headers))
            received.bodies.append(body)
            kind = self.headers["Content-Type"]
            received.spans.extend(of_json(body) if "json" in kind else of_protobuf(body))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def of_json(body: bytes) -> Iterator[Span]:
    """Read an ExportTraceServiceRequest in OTLP's JSON."""
    for whole in json.loads(body)["resourceSpans"]:
        resource = _attributes(whole["resource"]["attributes"])
        for scope in whole["scopeSpans"]:
            for one in scope["spans"]:
                yield Span(
                    one["traceId"],
                    one["spanId"],
                    one.get("parentSpanId", ""),
                    one["name"],
                    one["kind"],
                    int(one["startTimeUnixNano"]),
                    int(one["endTimeUnixNano"]),
                    _attributes(one["attributes"]),
                    resource,
                    one["status"].get("code", 0),
                    tuple(event["name"] for event in one["events"]),
                )


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        ((kind, value),) = pair["value"].items()
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a message: whole numbers, 8 bytes as such, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, data[at : at + size]
            at += size
        else:
            size, at = _varint(data, at)
            yield number, data[at : at + size]
            at += size


def _all(data: bytes, number: int) -> list[Any]:
    return [value for found, value in _fields(data) if found == number]


def _pairs(message: bytes, number: int) -> dict[str, Any]:
    found = {}
    for pair in _all(message, number):
        parts = dict(_fields(pair))
        ((kind, value),) = _fields(parts[2])
        texts = {1: lambda raw: raw.decode(), 4: lambda raw: struct.unpack("<d", raw)[0]}
        found[parts[1].decode()] = texts.get(kind, lambda raw: raw)(value)
    return found


def of_protobuf(body: bytes) -> Iterator[Span]:
    """Read an ExportTraceServiceRequest in protobuf."""
    for whole in _all(body, 1):
        resource: dict[str, Any] = {}
        for one in _all(whole, 1):
            resource |= _pairs(one, 1)
        for scope in _all(whole, 2):
            for one in _all(scope, 2):
                parts = dict(_fields(one))
                yield Span(
                    parts[1].hex(),
                    parts[2].hex(),
                    parts.get(4, b"").hex(),
                    parts[5].decode(),
                    parts.get(6, 0),
                    struct.unpack("<Q", parts[7])[0],
                    struct.unpack("<Q", parts[8])[0],
                    _pairs(one, 9),
                    resource,
                )
