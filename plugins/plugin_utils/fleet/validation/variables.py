# SPDX-License-Identifier: GPL-3.0-or-later

"""Find every mistake of an inventory's variables at once, before anything is touched."""

from __future__ import annotations

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...deployment import Deployment, check_deployment
from ...documents import from_document, knowledge
from ...findings import ApiaryError, Finding
from ...host.role_options import checked
from ...plan.build import architecture_of
from ..names import fold
from .hosts import EVERYTHING, STEPS, HostVariables, Roles, Scope, fleet_mistakes

# How alike a name has to be to be meant: one or two letters of host_tuning_profile.
_ALIKE = 0.9
_ORDER = {"error": 0, "warning": 1, "info": 2}
_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_LATER = re.compile(r"'(?:ansible_\w+|__\w+)' is undefined|ansible_facts|no attribute 'ansible_")
# `-e NAME=true` gives text; these are Ansible's own words for it.
_SWITCH = ("yes", "no", "on", "off", "true", "false", "1", "0")
_TYPES: Mapping[str, tuple[str, Any]] = {
    "text": ("text", lambda value: isinstance(value, (str, int)) and not isinstance(value, bool)),
    "price": (
        "a price",
        lambda value: isinstance(value, (str, int, float)) and not isinstance(value, bool),
    ),
    "switch": ("true or false", lambda value: str(value).lower() in _SWITCH),
    "texts": ("a list of texts", lambda value: _all(value, str)),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
    "mappings": ("a list of mappings", lambda value: _all(value, Mapping)),
}


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, kind) for one in value)


def validate(
    hosts: Sequence[HostVariables],
    roles: Roles,
    unread: Mapping[str, Finding] | None = None,
    only: Collection[str] | None = None,
    scope: Scope = EVERYTHING,
) -> tuple[Finding, ...]:
    """Return every mistake of all hosts, worst first; hosts that share one are told together.

    ``roles`` are the options of each role by its name, ``unread`` what is wrong with files that
    model.config names. Only mistakes of hosts in ``only`` are told, where it is given, and of roles
    only those that ``scope`` gives to a host. Hosts that have the same objects for values, as those
    of a group have, are looked at once.
    """
    known = frozenset(known_names(roles))
    named = functools.cache(
        lambda names, chosen: tuple(
            _names(names, known, known_names(_chosen(roles, chosen)), roles)
        )
    )
    seen: dict[tuple[object, ...], tuple[_Said, ...]] = {}
    found: list[Finding] = []
    for host in hosts:
        chosen = scope.roles(host)
        reading = _chosen(roles, chosen)
        later = scope.unread(host, roles) if host.unresolved else frozenset()
        said = [*named(host.names, chosen), *_unresolved(host, later), *_secrets(host)]
        for part in _parts(host, reading, "replicas" in chosen):
            if part.key not in seen:
                seen[part.key] = tuple(_judged(part, roles, unread or {}))
            said += seen[part.key]
        found += [one.about(host.host) for one in said]
    found += fleet_mistakes(hosts)
    return told(one for one in found if only is None or one.subject in only)


def _chosen(roles: Roles, chosen: Collection[str]) -> Roles:
    return {role: options for role, options in roles.items() if role in chosen}


def known_names(roles: Roles) -> set[str]:
    """Return every variable that means something to a role or a playbook."""
    table = knowledge("variables.yml")
    return {
        *table["variables"],
        *table["others"],
        *(name for one in roles.values() for name in one),
    }


def told(mistakes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each mistake, whichever hosts have it; errors and many hosts first."""
    hosts: defaultdict[Finding, dict[str, None]] = defaultdict(dict)
    for one in mistakes:
        hosts[one.about("")][one.subject] = None
    ordered = sorted(
        hosts, key=lambda one: (_ORDER[one.severity], -len(hosts[one]), one.code, one.message)
    )
    return tuple(one.about(_whom(list(hosts[one]))) for one in ordered)


def _whom(hosts: list[str]) -> str:
    folded = fold(hosts)
    return folded if len(hosts) == 1 else f"{len(hosts)} hosts, {folded}"


# A mistake that is not yet a host's: it has no subject.
_Said = Finding


def _names(
    names: Iterable[str], known: Collection[str], read: Collection[str], roles: Iterable[str]
) -> Iterator[_Said]:
    """Yield variables that mean nothing and look as if they should.

    Only one like a variable that is ``read`` of the host is an error: others may be of other tools.
    """
    prefixes = ("apiary_", *(f"{role}_" for role in roles))
    for name in sorted(names):
        if name in known or name.startswith(("ansible_", "vault_", "__")):
            continue
        near = difflib.get_close_matches(name, known, 1, _ALIKE)
        if near and not name.startswith(f"{near[0]}_"):
            message = f"nothing reads the variable {name}; {near[0]} is perhaps meant"
            yield Finding("INVENTORY-UNKNOWN", "", message, minor=near[0] not in read)
        elif name.startswith(prefixes):
            yield Finding(
                "INVENTORY-UNKNOWN",
                "",
                f"nothing reads the variable {name}, which is named like one of Apiary's",
                minor=True,
            )


def _unresolved(host: HostVariables, unread: Collection[str]) -> Iterator[_Said]:
    """Yield templates that lead nowhere; those that wait for facts of the run are left alone."""
    for name, why in sorted(host.unresolved.items()):
        if name in unread or _LATER.search(why):
            continue
        missing = _UNDEFINED.search(why)
        yield Finding(
            "INVENTORY-UNRESOLVED", "", f"{name}: {why}", name=missing[1] if missing else name
        )


def _secrets(host: HostVariables) -> Iterator[_Said]:
    for secret in host.secrets:
        yield Finding(
            "INVENTORY-PLAIN-SECRET",
            "",
            f"{secret.variable} is a secret and plain text in {secret.file}",
        )


@dataclass(frozen=True)
class _Part:
    """Some of a host's values that are judged together; without a role those of playbooks.

    ``unresolved`` are names that have a value nobody knows yet.
    """

    role: str | None
    values: Mapping[str, Any]
    serves: bool = False
    unresolved: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        """Return what is the same where the judgement is: the values themselves, not copies."""
        values = ((name, id(value)) for name, value in self.values.items())
        return (self.role, self.serves, self.unresolved, *values)


def _parts(host: HostVariables, roles: Roles, serves: bool) -> Iterator[_Part]:
    values = host.values
    for role, options in roles.items():
        chosen = {name: values[name] for name in options if name in values}
        if chosen:
            yield _Part(role, chosen)
    read = (*knowledge("variables.yml")["variables"], "replicas_secrets")
    yield _Part(
        None,
        {name: values[name] for name in read if name in values},
        serves and "gpu_hosts" in host.groups,
        frozenset(host.unresolved),
    )


def _judged(part: _Part, roles: Roles, unread: Mapping[str, Finding]) -> Iterator[_Said]:
    """Yield what is wrong with these values, whichever host has them."""
    if part.role is None:
        yield from _read(part, unread)
    else:
        yield from _options(part.role, roles[part.role], part.values)


def _options(role: str, options: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[_Said]:
    """Yield what a role would refuse at its beginning."""
    for name, value in values.items():
        _value, messages = checked(name, options[name], value)
        for message in messages:
            yield Finding("INVENTORY-OPTION", "", message, role=role)


def _read(part: _Part, unread: Mapping[str, Finding]) -> Iterator[_Said]:
    """Yield what is wrong with the variables that playbooks read themselves."""
    values = dict(part.values)
    for name, entry in knowledge("variables.yml")["variables"].items():
        expected, fits = _TYPES[entry["type"]]
        if values.get(name) is not None and not fits(values[name]):
            del values[name]
            yield Finding("INVENTORY-VALUE", "", f"{name} is not {expected}", allowed=expected)
    yield from _steps(values.get("apiary_concerns") or ())
    given = values.keys() | part.unresolved | part.values.keys()
    if part.serves and not given & {"apiary_deployment", "apiary_deployments"}:
        yield Finding("INVENTORY-NO-DEPLOYMENT", "", "nothing says what it serves")
    serves = part.serves and "replicas_secrets" not in part.unresolved
    yield from _deployments(values, serves, unread)


def _steps(concerns: Iterable[str]) -> Iterator[_Said]:
    for name in concerns:
        if name not in STEPS:
            near = difflib.get_close_matches(name, STEPS, 1)
            yield Finding(
                "INVENTORY-VALUE",
                "",
                f"apiary_concerns has {name!r}, which is no step of site.yml",
                allowed=near[0] if near else f"some of {', '.join(STEPS)}",
            )


def _refusals(action: Callable[[], object]) -> Iterator[_Said]:
    """Yield the findings that an action refuses with, each with its subject in the message."""
    try:
        action()
    except ApiaryError as refusal:
        yield from map(_said, refusal.findings)


def _said(finding: Finding) -> _Said:
    return finding.about("").reworded(message=f"{finding.subject}: {finding.message}")


def _deployments(
    values: Mapping[str, Any], serves: bool, unread: Mapping[str, Finding]
) -> Iterator[_Said]:
    """Yield what is wrong with what a host is asked to serve."""
    one = values.get("apiary_deployment")
    asked = values.get("apiary_deployments") or ([one] if one else [])
    read: list[Deployment] = []
    for number, document in enumerate(asked):
        where = f"apiary_deployments[{number}]" if len(asked) > 1 else "apiary_deployment"
        try:
            deployment = from_document(Deployment, document, where)
        except ApiaryError as refusal:
            yield from map(_said, refusal.findings)
            continue
        read.append(deployment)
        for mistake in map(_said, check_deployment(deployment)):
            yield mistake.reworded(message=f"{where}: {mistake.message}")
        config = deployment.model.config
        if config is None:
            yield from _refusals(functools.partial(architecture_of, deployment, where))
        elif config in unread:
            yield _said(unread[config])
        if serves:
            yield from _credentials(deployment, values)
    yield from _beside(read)
    runtimes = sorted({one.engine.runtime for one in read} - {"native"})
    if serves and runtimes and "container_runtime" not in (values.get("apiary_concerns") or ()):
        message = f"engines run by {runtimes[0]}, and apiary_concerns has no container_runtime"
        yield Finding("INVENTORY-NO-RUNTIME", "", message)


def _credentials(deployment: Deployment, values: Mapping[str, Any]) -> Iterator[_Said]:
    """Yield secrets that a deployment names and nobody gives."""
    given = values.get("replicas_secrets") or {}
    for name in deployment.secrets:
        if isinstance(given, Mapping) and name not in given:
            yield Finding(
                "INVENTORY-SECRET-MISSING",
                "",
                f"{deployment.name} wants the secret {name}, which replicas_secrets lacks",
                name=name,
            )


def _beside(deployments: Sequence[Deployment]) -> Iterator[_Said]:
    """Yield deployments of one host that meet: in their name, or in their ports."""
    taken: dict[int, str] = {}
    names: set[str] = set()
    for one in deployments:
        if one.name in names:
            yield Finding(
                "INVENTORY-DEPLOYMENT-TWICE",
                "",
                f"two deployments of one host are named {one.name}",
            )
        names.add(one.name)
        replicas = getattr(one.layout, "replicas", 1)
        for port in range(
            one.base_port, one.base_port + (replicas if isinstance(replicas, int) else 1)
        ):
            other = taken.setdefault(port, one.name)
            if other != one.name:
                yield Finding(
                    "INVENTORY-PORT-TWICE",
                    "",
                    f"deployments {other} and {one.name} both want port {port}",
                )
                break
