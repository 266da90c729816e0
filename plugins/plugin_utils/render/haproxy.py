# SPDX-License-Identifier: GPL-3.0-or-later

"""A router as files: HAProxy's configuration, maps, paths and Lua; its unit, what keeps states."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2

from ..documents import dumps, knowledge
from ..findings import error
from ..host.program import sandbox, standalone
from ..router.check import since
from ..router.pools import routed_models
from ..router.types import Pool, Router, RouterSettings
from .unit import UNITS, RenderedFile, secret_reference, templates

CONFIGURATION = "/etc/haproxy/haproxy.cfg"
DIRECTORY = "/etc/haproxy/apiary"
SOCKET = "/run/haproxy/admin.sock"
STATE_FILE = "/var/lib/haproxy/server-state"
# What verifies replicas that speak TLS.
AUTHORITY = f"{DIRECTORY}/replicas.pem"
# What the hash is made of; a client's own header of this name is dropped.
SESSION = "X-Apiary-Session"
# HAProxy samples the share of requests that are traced from this many.
SAMPLING = 1_000_000
# A key's own limits, by the name of their map.
_LIMITS = {"rates": "requests_per_minute", "concurrency": "concurrent_requests"}


def render_router(router: Router) -> tuple[RenderedFile, ...]:
    """Return a router's files but for its engines' keys; those with mode 0640 are secret."""
    keys, facts = router.settings.keys, knowledge("router.yml")
    paths = sorted({*facts["paths"]["exact"], *router.settings.paths})
    places = facts["overload"]["priorities"]
    ranked = [key for key in keys if key.priority != "normal"]
    maps = {"keys": [f"{key.sha256} {key.name}" for key in keys]}
    for name, field in _LIMITS.items():
        limits = {key.name: getattr(key, field) for key in keys}
        maps[name] = [f"{key} {limit}" for key, limit in limits.items() if limit is not None]
    maps["priorities"] = [f"{key.name} {places[key.priority]['place']}" for key in ranked]
    return (
        RenderedFile(CONFIGURATION, "0644", _configuration(router)),
        RenderedFile(f"{DIRECTORY}/replica.lua", "0644", _chooser(router)),
        RenderedFile(f"{DIRECTORY}/paths.lst", "0644", _lines(paths)),
        *(
            RenderedFile(f"{DIRECTORY}/{name}.map", "0640", _lines(lines))
            for name, lines in maps.items()
        ),
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@cache
def _templates() -> jinja2.Environment:
    environment = templates().overlay()
    environment.filters = environment.filters | {
        "host": _host,
        "milliseconds": lambda seconds: f"{round(seconds * 1000)}ms",
        "body": _body,
        "body_bytes": _body_bytes,
        "answer": lambda entry, settings: f"status {entry['status']} {_body(entry, settings)}",
    }
    return environment


def _chooser(router: Router) -> str:
    affinity, facts = router.settings.affinity, knowledge("router.yml")
    return (
        _templates()
        .get_template("haproxy.lua.j2")
        .render(
            session=SESSION,
            share=affinity.free_percent / 100,
            factor=affinity.balance_percent / 100,
            candidates=facts["chooser"]["candidates"],
            fields=[key[len("json:") :] for key in affinity.keys if key.startswith("json:")],
            prompt="prompt" in affinity.keys,
            deployments=[pool.deployment for pool in router.pools],
            overload=facts["overload"],
            within=router.settings.queueing.within_slo,
            ttft=router.settings.queueing.ttft_seconds,
            models=router.settings.shared_port and routed_models(router.pools, router.settings),
            experiments=router.settings.experiments,
            routing=facts["models"],
            **facts["sessions"],
        )
    )


def _configuration(router: Router) -> str:
    settings, facts = router.settings, knowledge("router.yml")
    tls = f" ssl crt {settings.tls.certificate} alpn http/1.1" if settings.tls else ""
    return (
        _templates()
        .get_template("haproxy.cfg.j2")
        .render(
            settings=settings,
            pools=router.pools,
            facts=facts,
            agent=knowledge("serving/life.yml")["agent"],
            errors=facts["errors"]["entries"],
            socket=SOCKET,
            state_file=STATE_FILE,
            directory=DIRECTORY,
            session=SESSION,
            authority=AUTHORITY,
            tls=tls,
            buffer=buffer_bytes(router),
            per_source=per_source(settings),
            limited=any(key.requests_per_minute for key in settings.keys),
            concurrent=any(key.concurrent_requests for key in settings.keys),
            prioritized=any(key.priority != "normal" for key in settings.keys),
            share=lambda pool: _share(pool, settings),
            idle_close=since(
                settings.version, facts["versions"]["idle_close_on_response"]["since"]
            ),
            session_rules=tuple(_session_rules(settings)),
            log_format=partial(_log_format, settings.tracing is not None),
            tracing=settings.tracing,
            traceparent=knowledge("tracing.yml")["traceparent"],
            lots=SAMPLING,
        )
    )


def buffer_bytes(router: Router) -> int:
    """Return what a connection may hold: all of the largest body, and what is before it."""
    bodies = [_body_bytes(pool, router.settings) for pool in router.pools]
    beside: int = knowledge("router.yml")["bodies"]["beside"]
    return max(bodies, default=0) + beside


def per_source(settings: RouterSettings) -> int:
    """Return how many connections an address may have."""
    return settings.limits.connections_per_source or settings.connections // 4


def _body_bytes(pool: Pool, settings: RouterSettings) -> int:
    """Return the largest body of a request to a pool."""
    default: int = knowledge("router.yml")["bodies"]["images" if pool.images else "text"]
    return settings.limits.body_bytes or default


def _share(pool: Pool, settings: RouterSettings) -> str | None:
    """Return HAProxy's expression for how many requests a key may have at a pool by default."""
    if settings.limits.requests_per_key or len(settings.keys) < 2:
        return None
    concurrency = min(server.concurrency for server in pool.servers)
    return f"nbsrv({pool.deployment}),mul({concurrency + settings.queueing.per_replica // 2})"


def _host(address: str) -> str:
    """Return an address as it stands before a port."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def _body(entry: Mapping[str, Any], settings: RouterSettings) -> str:
    """Return an answer's type, text and headers, in the shape that OpenAI's clients read."""
    rendered = {
        "message": entry["message"],
        "type": entry["type"],
        "param": entry.get("param"),
        "code": entry["code"],
    }
    text = f"content-type application/json string '{json.dumps({'error': rendered})}'"
    if entry.get("retry"):
        # Not all at the same moment.
        seconds = settings.queueing.retry_after_seconds
        text += f" hdr Retry-After %[rand({seconds + 1}),add({seconds})]"
    return text


def _session_rules(settings: RouterSettings) -> Iterator[str]:
    """Yield the rules that name a request's session: the first of the keys that it has.

    What is sought in the body is sought once, where the first of such keys stands. Each kind of key
    but headers and cookies says that it was it.
    """
    affinity, looked = settings.affinity, False
    unless = "!{ var(txn.session) -m reg . }"
    for key in affinity.keys:
        kind, _colon, name = key.partition(":")
        if kind in ("json", "prompt"):
            if looked:
                continue
            looked = True
            paths = " ".join(knowledge("router.yml")["sessions"]["paths"])
            head = f"req.body,bytes(0,{affinity.json_bytes})"
            yield f"set-var(txn.head) {head} if {unless} {{ path -m str {paths} }}"
            yield "set-var(txn.session) lua.apiary_session if { var(txn.head) -m found }"
            yield "unset-var(txn.head)"
        elif kind == "address":
            yield f"set-var(txn.kind) str(address) if {unless}"
            # A client has all of an IPv6 network of 64 bits to itself.
            yield f"set-var(txn.session) src,ipmask(32,64) if {unless}"
        else:
            source = {"header": f"req.fhdr({name})", "cookie": f"req.cook({name})"}[kind]
            yield f"set-var(txn.session) {source} if {unless} {{ {source} -m reg . }}"


def _log_format(traced: bool, deployment: str, divided: bool) -> str:
    """Return a line of JSON: nothing of what was asked or answered, and no key but its name."""
    log = knowledge("router.yml")["log"]
    fields = log["texts"] | (log["traced"] if traced else {})
    fields |= log["divided"] if divided else {}
    texts = "".join(f'"{name}":"{value}",' for name, value in fields.items())
    numbers = ",".join(f'"{name}":{value}' for name, value in log["numbers"].items())
    return f'{{"time":%Ts.%ms,"deployment":"{deployment}",{texts}{numbers}}}'


DOCUMENT = f"{DIRECTORY}/router.json"
PROGRAM = "/usr/libexec/apiary/haproxy.py"
DROP_IN = f"{UNITS}/haproxy.service.d/50-apiary.conf"
# Ends drains whose time is over, and has HAProxy take a certificate that was renewed.
TIMER = "apiary-router.timer"
UNIT_FILES = {
    DROP_IN: "haproxy_drop_in.conf.j2",
    f"{UNITS}/apiary-router.service": "router.service.j2",
    f"{UNITS}/{TIMER}": "router.timer.j2",
}
_WORD = re.compile(r"[!-~]+", re.ASCII)
# The module that drains and the service that keeps drains read states by the same code.
_PROGRAM = Path(__file__).parents[2] / "module_utils/router/haproxy.py"


def engines_map(keys: Mapping[str, str]) -> RenderedFile:
    """Return the file with a reference to the engines' key of each deployment; raise ROUTER-KEY.

    The keys are checked and are not in the file, so that no result of deciding has them.
    """
    for name, key in keys.items():
        if not _WORD.fullmatch(key) or not _WORD.fullmatch(name):
            raise error(
                "ROUTER-KEY",
                f"the engines' key of {name!r}",
                "is empty, or has spaces or letters that a header cannot have",
            )
    lines = "".join(f"{name} {secret_reference(name)}\n" for name in sorted(keys))
    return RenderedFile(f"{DIRECTORY}/engines.map", "0640", lines)


@cache
def program() -> str:
    """Return the text of the program that saves the servers' states."""
    return standalone(_PROGRAM)


def render_router_host(router: Router, python: str) -> tuple[RenderedFile, ...]:
    """Return the files; ``python`` is the host's interpreter, an absolute path."""
    facts = knowledge("router_unit.yml")
    limits = facts["open_files"]
    connections = router.settings.connections
    values = {
        "python": python,
        "program": PROGRAM,
        "configuration": CONFIGURATION,
        "stop_seconds": facts["stop"]["seconds"],
        "sandbox": sandbox("haproxy.service"),
        "open_files": max(limits["least"], limits["per_connection"] * connections),
        "certificate": router.settings.tls and router.settings.tls.certificate,
        "stamp": facts["certificate"]["stamp"],
        "keeper_sandbox": sandbox("apiary-router.service"),
    }
    return (
        RenderedFile(PROGRAM, "0644", program()),
        *(
            RenderedFile(path, "0644", templates().get_template(name).render(values))
            for path, name in UNIT_FILES.items()
        ),
        # It names the digests of API keys. Findings are of the day, and change nothing.
        RenderedFile(DOCUMENT, "0600", dumps(replace(router, findings=()))),
    )
