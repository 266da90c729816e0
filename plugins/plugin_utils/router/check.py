# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A router's settings and names are checked before anything is rendered from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from .types import Router, RouterSettings


def check_settings(settings: RouterSettings) -> tuple[Finding, ...]:
    """Return a refusal (ROUTER-SETTING) for each setting that HAProxy could not have or mean."""
    return (*_texts(settings), *_numbers(settings), *_keys(settings))


def check_router(router: Router) -> tuple[Finding, ...]:
    """Return the refusals of the settings, and of names that HAProxy does not take (ROUTER-NAME).

    For a router that comes from a file; nothing in it may leave its place in a configuration.
    """
    return (*check_settings(router.settings), *_names(router))


def _bad(field: str, value: object, expected: str) -> Finding:
    return Finding(
        "ROUTER-SETTING", field, f"is {value!r}, expected {expected}", field=field, allowed=expected
    )


def _matches(name: str, text: str) -> bool:
    pattern: str = knowledge("router.yml")["names"][name]
    return re.fullmatch(pattern, text, re.ASCII) is not None


def _texts(settings: RouterSettings) -> Iterator[Finding]:
    facts = knowledge("router.yml")
    for address in (*settings.listen, settings.admin_listen):
        if address != "*" and not _matches("address", address):
            yield _bad("listen", address, "an address of the router, or *")
    if not settings.listen:
        yield _bad("listen", [], "at least one address, or *")
    for path in settings.paths:
        if not _matches("path", path):
            yield _bad("paths", path, "a path such as /v1/models")
    if not _matches("file", settings.log) and not _matches("address", settings.log):
        yield _bad("log", settings.log, "/dev/log, or a syslog server's address:port")
    if settings.tls:
        if not _matches("file", settings.tls.certificate):
            yield _bad("tls.certificate", settings.tls.certificate, "an absolute path")
        if settings.tls.minimum not in facts["tls"]["minimum"]:
            supported = " or ".join(facts["tls"]["minimum"])
            yield _bad("tls.minimum", settings.tls.minimum, supported)
    least = facts["versions"]["minimum"]
    if not re.match(r"\d+\.\d+", settings.version) or not since(settings.version, least):
        yield _bad("version", settings.version, f"HAProxy {least} or later")


def since(version: str, first: str) -> bool:
    """Say whether a version such as 2.6.12-1+deb12u4 is ``first`` or later; both begin with x.y."""
    numbers, least = (tuple(map(int, re.findall(r"\d+", text)[:2])) for text in (version, first))
    return numbers >= least


def _numbers(settings: RouterSettings) -> Iterator[Finding]:
    """Refuse numbers that are out of their range."""
    queueing, timeouts, health = settings.queueing, settings.timeouts, settings.health
    limits, size = settings.limits, settings.limits.body_bytes
    ports: dict[str, Any] = {
        "first_port": settings.first_port,
        "admin_port": settings.admin_port,
        **{f"ports.{name}": port for name, port in settings.ports.items()},
    }
    for field, port in ports.items():
        if not 1 <= port <= 65535:
            yield _bad(field, port, "a port from 1 to 65535")
    positive: dict[str, float | None] = {
        **{f"queueing.{name}": value for name, value in vars(queueing).items()},
        **{f"limits.{name}": value for name, value in vars(limits).items() if name != "body_bytes"},
        "health.rise": health.rise,
        "health.fall": health.fall,
        "health.passive_errors": health.passive_errors,
        "active_routers": settings.active_routers,
        "threads": settings.threads,
        **{f"timeouts.{name}": value for name, value in vars(timeouts).items()},
    }
    for field, number in positive.items():
        if number is not None and number < 1:
            yield _bad(field, number, "at least 1")
    if settings.tracing and not 0 <= settings.tracing.ratio <= 1:
        yield _bad("tracing.ratio", settings.tracing.ratio, "a number from 0 to 1")
    for name in ("interval", "fast_interval", "down_interval", "timeout"):
        if not 0.1 <= getattr(health, name) <= 3600:
            yield _bad(f"health.{name}", getattr(health, name), "0.1 to 3600 seconds")
    if not 0 <= health.slow_start <= 3600:
        yield _bad("health.slow_start", health.slow_start, "0 to 3600 seconds")
    # Text alone may need megabytes, and HAProxy keeps a body as one block of at most 256 MiB.
    if size is not None and not 65536 <= size <= 134_217_728:
        yield _bad("limits.body_bytes", size, "65536 to 134217728")
    if not 100 <= settings.connections <= 1_000_000:
        yield _bad("connections", settings.connections, "100 to 1000000")
    factor, size = settings.affinity.balance_percent, settings.affinity.json_bytes
    # At 100 the bound is the average, and a session moves whenever its replica is above it.
    if not 101 <= factor <= 1000:
        yield _bad("affinity.balance_percent", factor, "101 to 1000 percent of the average")
    if not 0 <= settings.affinity.free_percent <= 100:
        free = settings.affinity.free_percent
        yield _bad("affinity.free_percent", free, "0 to 100 percent of the concurrency")
    if not 16384 <= size <= 4_194_304:
        yield _bad("affinity.json_bytes", size, "16384 to 4194304")


def _keys(settings: RouterSettings) -> Iterator[Finding]:
    """Refuse affinity keys and API keys that HAProxy's configuration and maps cannot have."""
    facts = knowledge("router.yml")["keys"]
    for key in settings.affinity.keys:
        kind, _colon, name = key.partition(":")
        shape = {"json": facts["field"], "prompt": "", "address": ""}.get(kind, facts["name"])
        if kind not in facts["kinds"] or not re.fullmatch(shape, name, re.ASCII):
            expected = "header:NAME, cookie:NAME, json:FIELD, prompt or address"
            yield _bad("affinity.keys", key, expected)
    for entry in settings.keys:
        if not _matches("key", entry.name):
            yield _bad("keys.name", entry.name, "letters, digits and . _ @ -, at most 64")
        if not _matches("digest", entry.sha256):
            yield _bad(f"keys.{entry.name}.sha256", "not a digest", "64 hexadecimal digits")
        for field in ("requests_per_minute", "concurrent_requests"):
            number = getattr(entry, field)
            if number is not None and number < 1:
                yield _bad(f"keys.{entry.name}.{field}", number, "at least 1")
    for field, values in (
        ("names", Counter(entry.name for entry in settings.keys)),
        ("values", Counter(entry.sha256 for entry in settings.keys)),
    ):
        for value, count in values.items():
            if count > 1:
                shown = value if field == "names" else "the same key"
                yield _bad("keys", shown, f"keys with {field} of their own")


def _names(router: Router) -> Iterator[Finding]:
    own = knowledge("router.yml")["names"]["own_prefix"]
    for pool in router.pools:
        named = {pool.deployment: ("deployment", _matches("server", pool.deployment))}
        if pool.deployment.startswith(own):
            named[pool.deployment] = ("deployment", False)
        for server in pool.servers:
            named[server.name] = ("host", _matches("server", server.name))
            named[server.address] = ("address of a host", _matches("address", server.address))
        for text, (what, good) in named.items():
            if not good:
                yield Finding(
                    "ROUTER-NAME",
                    repr(text),
                    f"cannot be the name of a {what} in HAProxy, or is one of the router's own",
                    own=own,
                )
