# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sends a router's spans: a program, what it is told, its unit and its socket's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..documents import knowledge
from ..findings import error
from ..router.types import Router
from .files import UNITS, RenderedFile, templates
from .haproxy import DIRECTORY

DOCUMENT = f"{DIRECTORY}/traces.json"
HEADERS = f"{DIRECTORY}/traces-headers.json"
PROGRAM = "/usr/libexec/apiary/traces.py"
# Below /run/apiary-traces, for node_exporter.
COUNTERS = "apiary_traces.prom"
SERVICE = "apiary-traces.service"
SOCKET_UNIT = "apiary-traces.socket"
# EX_CONFIG; the program ends with it where starting again would not help.
NO_CONFIGURATION = 78
# RFC 9110: a token, and visible letters with spaces between them.
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?", re.ASCII)
_PROGRAM = Path(__file__).parent / "router_programs/traces.py"


@cache
def program() -> str:
    """Return the text of the program that makes spans of log lines."""
    return _PROGRAM.read_text(encoding="utf-8")


def render_traces(router: Router, python: str) -> tuple[RenderedFile, ...]:
    """Return the files, none where the router has no traces; ``python`` is the interpreter.

    The collector's headers are a secret file of their own, which the role brings.
    """
    if router.settings.tracing is None:
        return ()
    limits, told = knowledge("tracing.yml")["exporter"], document(router)
    service = (
        templates()
        .get_template("traces.service.j2")
        .render(
            python=python,
            program=PROGRAM,
            document=DOCUMENT,
            headers=HEADERS,
            no_configuration=NO_CONFIGURATION,
            # The last batch, and a second for what comes before and after.
            stop_seconds=limits["timeout_seconds"] + 5,
            memory=limits["memory"],
        )
    )
    socket = (
        templates()
        .get_template("traces.socket.j2")
        .render(port=router.settings.tracing.port, socket_bytes=limits["socket_bytes"])
    )
    return (
        RenderedFile(PROGRAM, "0644", program()),
        RenderedFile(DOCUMENT, "0644", told),
        RenderedFile(f"{UNITS}/{SOCKET_UNIT}", "0644", socket),
        RenderedFile(f"{UNITS}/{SERVICE}", "0644", service),
    )


def headers_file(headers: Mapping[str, str]) -> RenderedFile:
    """Return the file of root alone that has what lets the collector in; raise TRACE-SETTING.

    The finding names the header and not its value.
    """
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise error(
                "TRACE-SETTING",
                "router_tracing_headers",
                f"{name!r} has letters that a header of HTTP cannot have",
                "correct the name, or remove line breaks and letters beyond ASCII from the value",
            )
    return RenderedFile(HEADERS, "0600", json.dumps(dict(headers), sort_keys=True) + "\n")


def document(router: Router) -> str:
    """Return what the program reads: the collector, its limits, and who the servers are."""
    tracing = router.settings.tracing
    if tracing is None:
        raise ValueError("the router has no traces")
    limits = knowledge("tracing.yml")["exporter"]
    names = (
        *("queue_spans", "batch_spans", "delay_seconds", "timeout_seconds", "attempts"),
        *("retryable", "line_bytes", "socket_bytes", "counters_seconds"),
    )
    servers = {
        pool.deployment: {
            one.name: {
                "host": one.host,
                "replica": str(one.replica),
                "address": one.address,
                "port": one.port,
            }
            for one in pool.servers
        }
        for pool in router.pools
    }
    told = {name: limits[name] for name in names}
    told |= {
        "endpoint": tracing.endpoint,
        "service": tracing.service,
        "certificate": tracing.certificate,
        "servers": servers,
    }
    return json.dumps(told, indent=1, sort_keys=True) + "\n"
