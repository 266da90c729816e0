# SPDX-License-Identifier: GPL-3.0-or-later

"""The role `router`: its options, a host's evidence and all hosts' plans → the host's resources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils.router.haproxy import DEADLINES, LATE
from ..documents import from_document, knowledge, to_document
from ..evidence.types import Evidence
from ..findings import Finding
from ..host import resources
from ..host.facts import default_interface, package_manager, version
from ..host.types import ConcernPlan
from ..numbers import format_cpulist, parse_cpulist
from ..render import haproxy
from ..render.haproxy import (
    AUTHORITY,
    CONFIGURATION,
    DIRECTORY,
    DOCUMENT,
    PROGRAM,
    SOCKET,
    STATE_FILE,
    buffer_bytes,
    engines_map,
    per_source,
    render_router,
    render_router_host,
)
from ..render.keepalived import CONFIGURATION as KEEPALIVED
from ..render.keepalived import PASSWORD, SECRET, VirtualAddress, password_file, render_keepalived
from ..render.unit import RenderedFile, secret_reference
from ..router.fleet import MissingHost, api_keys, decide_router
from ..router.pools import PlannedHost
from ..router.types import Router, RouterSettings

Resource = Mapping[str, Any]
# What everybody on the host may read; other files have digests of keys.
_OPEN = "0644"
# The oldest release that is supported has what every later one has.
_OLDEST = "2.4"
_TLS_BUNDLE = "tls_bundle"
_GIB = 1 << 30
_RENAMED = {"name_replica": "name_replica_enabled", "active_routers": "active"}
_FIELDS = (
    *("listen", "first_port", "ports", "shared_port", "affinity", "queueing", "limits"),
    *("timeouts", "health", "paths", "admin_listen", "admin_port", "connections", "threads"),
    *("log", "allow_removed", "experiments"),
    *_RENAMED,
)


@dataclass(frozen=True)
class RouterRolePlan(ConcernPlan):
    """What a router becomes.

    ``programs`` are installed first: what they are decides the rest. ``pools`` are the port and the
    servers of each deployment.
    """

    programs: tuple[Resource, ...] = ()
    pools: Mapping[str, Any] | None = None


def decide(
    options: Mapping[str, Any],
    evidence: Evidence,
    plans: Sequence[PlannedHost],
    missing: Sequence[MissingHost],
    python: str,
    peers: Sequence[Evidence] = (),
    authority: Callable[[], str] = str,
) -> RouterRolePlan:
    """Return what the host becomes; raise ApiaryError with every refusal.

    ``options`` are the role's with their prefix, ``python`` is the host's interpreter, ``peers``
    what other routers were seen to run, ``authority`` returns what verifies replicas by TLS.
    """
    if options["router_state"] == "absent":
        return RouterRolePlan(resources=(*_absent(options, evidence),))
    engine_keys = _texts(options["router_engine_keys"])
    router = decide_router(
        _settings(options, evidence),
        plans,
        missing,
        _before(evidence),
        engine_keys,
        [router for peer in peers if (router := _before(peer))],
    )
    total = _memory(evidence)
    router = _beside(_within(router, total), evidence, plans)
    verifies = any(server.tls for pool in router.pools for server in pool.servers)
    verifier = [RenderedFile(AUTHORITY, _OPEN, authority())] if verifies else []
    return RouterRolePlan(
        findings=(
            *router.findings,
            *_memory_findings(router, total),
            *_overload_findings(router, evidence),
        ),
        programs=programs(options, evidence),
        resources=(
            *_selinux(evidence),
            _haproxy(
                options, [*render_router_host(router, python), *verifier], router, engine_keys
            ),
            *_kernel(evidence, "present"),
            _timer(present=True),
            _keepalived(options, evidence, python),
        ),
        pools={
            pool.deployment: {
                "port": pool.port,
                "servers": {item.name: f"{item.address}:{item.port}" for item in pool.servers},
            }
            for pool in router.pools
        },
    )


def _memory(evidence: Evidence) -> int | None:
    """Return the host's memory in bytes."""
    match = re.search(r"^MemTotal:\s+(\d{1,12}) kB", evidence.files.get("/proc/meminfo", ""))
    return int(match[1]) * 1024 if match else None


def _within(router: Router, total: int | None) -> Router:
    """Return the router with as many connections an address as half of its memory holds requests.

    A power of two, so that two kernels that leave a little less memory do not differ. What somebody
    has set stays, and all does where the memory is not known.
    """
    limits = router.settings.limits
    if total is None or limits.connections_per_source:
        return router
    fit = total // 2 // buffer_bytes(router)
    least: int = knowledge("router.yml")["memory"]["least"]
    several = min(max(least, 1 << fit.bit_length() >> 1), per_source(router.settings))
    limits = replace(limits, connections_per_source=several)
    return replace(router, settings=replace(router.settings, limits=limits))


def _beside(router: Router, evidence: Evidence, plans: Sequence[PlannedHost]) -> Router:
    """Return the router on those CPUs of its host that no replica has, where it serves, too."""
    own = [one.plan for one in plans if one.host == evidence.host]
    taken = {cpu for plan in own for one in plan.replicas for cpu in parse_cpulist(one.cpus or "")}
    online = parse_cpulist(evidence.files.get("/sys/devices/system/cpu/online", ""))
    left = sorted(set(online) - taken)
    if not taken or not left:
        return router
    most = min(len(left), knowledge("router_unit.yml")["threads"]["most"])
    settings = router.settings
    threads = settings.threads or most
    return replace(router, settings=replace(settings, threads=threads, cpus=format_cpulist(left)))


def _kernel(evidence: Evidence, state: str) -> Iterable[Resource]:
    """Let as many connections wait to be accepted as come when another router's clients do."""
    facts = knowledge("router_unit.yml")["kernel"]
    mounts = evidence.files.get("/proc/mounts", "")
    fixed = re.search(r"^\S+ /proc/sys \S+ ro\b", mounts, re.MULTILINE)  # by a container's engine
    known = {path: value for path, value in facts["least"].items() if path in evidence.files}
    least = {} if fixed else known
    file, values = resources.at_least(facts["file"], least, evidence, state)
    return (
        *resources.files((file,), keep_original=True),
        resources.live("router", values, state),
    )


def _memory_findings(router: Router, total: int | None) -> Iterator[Finding]:
    """Warn of requests that are larger than memory, or than buffers that are cheap."""
    size, several = buffer_bytes(router), per_source(router.settings)
    if total is not None and several * size > total // 2:
        message = (
            f"one address may have {several} connections with {size / (1 << 20):.0f} MiB each, "
            f"{several * size / _GIB:.1f} of this router's {total / _GIB:.1f} GiB"
        )
        fit = max(1, total // 2 // size)
        yield Finding("ROUTER-MEMORY", "limits", message, fit=fit)
    mapped: int = knowledge("router.yml")["bodies"]["mapped"]
    if size > mapped:
        message = f"requests may have {(router.settings.limits.body_bytes or 0) >> 20} MiB"
        yield Finding("ROUTER-BODY-LARGE", "limits.body_bytes", message)


def _overload_findings(router: Router, evidence: Evidence) -> Iterator[Finding]:
    """Say what an overload meets no limit of, and what the kernel would drop before one is met."""
    queueing, facts = router.settings.queueing, knowledge("router_unit.yml")["conntrack"]
    for name in sorted(pool.deployment for pool in router.pools):
        if name not in queueing.ttft_seconds:
            yield Finding("ROUTER-LIMIT-NONE", name, "ttft_seconds of router_queueing is not set")
    table = evidence.files.get(facts["file"], "").strip()
    fit = facts["per_connection"] * router.settings.connections
    if re.fullmatch(r"[0-9]{1,12}", table) and int(table) < fit:
        message = f"the kernel tracks {table} connections, {fit} are needed"
        yield Finding("ROUTER-CONNTRACK", facts["file"], message, fit=fit)


def _texts(mapping: Mapping[Any, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()}


def programs(options: Mapping[str, Any], evidence: Evidence) -> tuple[Resource, ...]:
    """Return what installs the programs that the host lacks."""
    wanted = ["haproxy", *(["keepalived"] if options["router_virtual_addresses"] else [])]
    missing = [name for name in wanted if not _runs(evidence, f"{name}_version")]
    if not missing:
        return ()
    manager = package_manager(evidence)
    return ({"kind": "packages", "manager": manager, "names": missing},)


def runs(evidence: Evidence) -> bool:
    """Return whether the host is a router already."""
    return _runs(evidence, "router_document")


def _runs(evidence: Evidence, command: str) -> bool:
    output = evidence.commands.get(command)
    return output is not None and output.exit == 0


def _before(evidence: Evidence) -> Router | None:
    """Return what the router runs now."""
    if not runs(evidence):
        return None
    subject = f"{evidence.host}: {DOCUMENT}"
    return from_document(Router, json.loads(evidence.commands["router_document"].stdout), subject)


def _settings(options: Mapping[str, Any], evidence: Evidence) -> RouterSettings:
    fields = {name: options[f"router_{_RENAMED.get(name, name)}"] for name in _FIELDS}
    virtual, tls = options["router_virtual_addresses"], options["router_tls_enabled"]
    if fields["active_routers"] is None:
        fields["active_routers"] = 1 if virtual else max(len(options["router_peers"]), 1)
    certificate = {"certificate": options["router_tls_path"]}
    document = {
        **fields,
        "tls": {**certificate, "minimum": options["router_tls_minimum"]} if tls else None,
        "keys": to_document(api_keys(options["router_api_keys"])),
        "tracing": options["router_tracing"] or None,
        "version": version(evidence, "haproxy_version") or _OLDEST,
    }
    return from_document(RouterSettings, document, f"{evidence.host}: the role router's settings")


def _selinux(evidence: Evidence) -> Iterable[Resource]:
    """Let HAProxy reach every port: on RHEL and its relatives it may reach web ports only."""
    boolean = evidence.files.get("/sys/fs/selinux/booleans/haproxy_connect_any", "")
    if boolean.split() == ["0", "0"]:
        yield {"kind": "command", "argv": ["setsebool", "-P", "haproxy_connect_any", "on"]}


def _haproxy(
    options: Mapping[str, Any],
    beside: Sequence[RenderedFile],
    router: Router,
    engine_keys: Mapping[str, str],
) -> Resource:
    rendered = [*beside, *render_router(router)]
    # Without keys of its own the router hands on what clients send.
    engines = engines_map(engine_keys if options["router_api_keys"] else {})
    listed = [*map(_file, rendered), _file(engines, sorted(engine_keys) if engines.content else [])]
    if options["router_tls_enabled"] and options["router_tls_bundle"] is not None:
        bundle = RenderedFile(options["router_tls_path"], "0600", secret_reference(_TLS_BUNDLE))
        listed.append(_file(bundle, [_TLS_BUNDLE]))
    return {
        "kind": "configuration",
        "service": "haproxy.service",
        "main": CONFIGURATION,
        "check": ["haproxy", "-c", "-f"],
        "socket": SOCKET,
        # Secret ones first: what names them comes after.
        "files": sorted(listed, key=lambda item: bool(item["mode"] == _OPEN)),
    }


def _timer(present: bool) -> Resource:
    state = "started" if present else "stopped"
    return {"kind": "service", "name": haproxy.TIMER, "enabled": present, "state": state}


def _file(item: RenderedFile, secrets: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "path": item.path,
        "mode": item.mode,
        "content": item.content,
        "secrets": list(secrets),
        "hidden": item.mode != _OPEN,
    }


def _keepalived(options: Mapping[str, Any], evidence: Evidence, python: str) -> Resource:
    resource = {"kind": "configuration", "service": "keepalived.service", "main": KEEPALIVED}
    if not options["router_virtual_addresses"]:
        return {**resource, "files": [{"path": KEEPALIVED}, {"path": PASSWORD}], "state": "absent"}
    password = options["router_virtual_password"]
    document = {
        "addresses": options["router_virtual_addresses"],
        "interface": options["router_virtual_interface"] or default_interface(evidence) or "",
        "peers": [
            {key: peer[key] for key in ("host", "address")} for peer in options["router_peers"]
        ],
        "router_id": options["router_virtual_id"],
        "password": password is not None,
    }
    virtual = from_document(VirtualAddress, document, f"{evidence.host}: the virtual address")
    secret = [_file(password_file(str(password)), [SECRET])] if password else []
    main = _file(render_keepalived(virtual, evidence.host, python, PROGRAM))
    check = ["keepalived", "--config-test", "--use-file"]
    return {**resource, "check": check, "files": [*secret, main]}


def _absent(options: Mapping[str, Any], evidence: Evidence) -> Iterable[Resource]:
    yield _timer(present=False)
    yield from _kernel(evidence, "absent")
    yield _keepalived({**options, "router_virtual_addresses": []}, evidence, "")
    names = (
        *("concurrency.map", "engines.map", "keys.map", "paths.lst"),
        *("priorities.map", "rates.map"),
        "replica.lua",
    )
    paths = [*(f"{DIRECTORY}/{name}" for name in names), AUTHORITY]
    paths += [PROGRAM, *haproxy.UNIT_FILES]
    # A certificate that somebody else brought stays his.
    if options["router_tls_bundle"] is not None:
        paths.append(options["router_tls_path"])
    # What the service saves is ours while the document says so, which goes after it.
    if runs(evidence):
        folder = STATE_FILE.rpartition("/")[0]
        paths += [STATE_FILE, f"{folder}/{DEADLINES}", f"{folder}/{LATE}"]
    yield {
        "kind": "configuration",
        "service": "haproxy.service",
        "main": CONFIGURATION,
        "files": [{"path": path} for path in (*paths, DOCUMENT, CONFIGURATION)],
        "state": "absent",
    }
