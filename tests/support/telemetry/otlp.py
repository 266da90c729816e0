# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Spans of OTLP as protobuf.

Field numbers are those of opentelemetry-proto 1.3 (trace/v1/trace.proto, common/v1/common.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
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
