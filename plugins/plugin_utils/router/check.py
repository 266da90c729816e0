# SPDX-License-Identifier: GPL-3.0-or-later

"""A router's settings and names are checked before anything is rendered from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from .types import Router, RouterSettings


def check_settings(settings: RouterSettings) -> tuple[Finding, ...]:
    """Return a refusal (ROUTER-SETTING) for each setting that HAProxy could not have or mean."""
    return (*_texts(settings), *_numbers(settings), *_keys(settings))


def check_router(
    router: Router, engine_keys: Mapping[str, str] = MappingProxyType({})
) -> tuple[Finding, ...]:
    """Return the refusals of the settings, and of names that HAProxy does not take (ROUTER-NAME).

    For a router that comes from a file; nothing in it may leave its place in a configuration.
    """
    return (
        *check_settings(router.settings),
        *_names(router),
        *_experiments(router, engine_keys),
    )


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
    ranges = knowledge("router.yml")["ranges"]["entries"]
    for field, (least, most, expected) in ranges.items():
        value: Any = settings
        for part in field.split("."):
            value = getattr(value, part, None)
        numbers = value if isinstance(value, Mapping) else {"": value}
        for name, number in numbers.items():
            if number is not None and not least <= number <= most:
                yield _bad(f"{field}.{name}" if name else field, number, expected)
    for name in (*settings.queueing.within_slo, *settings.queueing.ttft_seconds):
        if not _matches("server", name):
            yield _bad("queueing", name, "names of deployments")


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
        if entry.priority not in knowledge("router.yml")["overload"]["priorities"]:
            yield _bad(f"keys.{entry.name}.priority", entry.priority, "high, normal or low")
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
        served = pool.names if router.settings.shared_port else ()
        named = {name: ("model", _matches("model", name)) for name in served}
        named[pool.deployment] = ("deployment", _matches("deployment", pool.deployment))
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


def _experiments(router: Router, engine_keys: Mapping[str, str]) -> Iterator[Finding]:
    """Refuse what cannot be compared (ROUTER-EXPERIMENT): once for each experiment."""
    experiments = router.settings.experiments
    pools = {pool.deployment: pool for pool in router.pools}
    for name, one in experiments.items():
        a, b = pools.get(name), pools.get(one.deployment)
        if a is None or b is None:
            unknown = name if a is None else one.deployment
            wrong = f"{unknown!r} is no deployment of this router, which has {', '.join(pools)}"
        elif one.deployment in experiments:
            wrong = f"{one.deployment} is divided itself"
        elif not 0 <= one.sessions <= 1:
            wrong = f"the share of sessions is {one.sessions:g}, expected 0 to 1"
        elif missing := sorted({*a.names} - {*b.names}):
            wrong = f"{one.deployment} does not serve {', '.join(missing)}"
        elif not router.settings.keys and (
            a.engine_key != b.engine_key or engine_keys.get(name) != engine_keys.get(b.deployment)
        ):
            wrong = f"the engines of {one.deployment} have another key, and the router has none"
        else:
            continue
        yield Finding("ROUTER-EXPERIMENT", name, wrong)
