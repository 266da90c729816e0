# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may reach a host's replicas by the inventory, as addresses; names are resolved here.

For adapters; nothing that decides imports this.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .documents import knowledge
from .findings import ApiaryError, Finding, has_errors
from .fleet.names import address_of

Groups = Mapping[str, Sequence[str]]
Variables = Mapping[str, Mapping[str, Any]]
_TRUE = ("true", "yes", "on", "1")
_WHY = "is to reach replicas, and the controller finds no address for it that other hosts know"


@dataclass(frozen=True)
class Known:
    """What was read of hosts for other hosts: Ansible gathers variables anew at every access."""

    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    node_groups: dict[Any, list[str]] = field(default_factory=dict)


def reach_of(
    host: str,
    options: Mapping[str, Any],
    variables: Variables,
    groups: Groups,
    known: Known | None = None,
) -> tuple[list[str] | None, tuple[Finding, ...]]:
    """Return the addresses that alone are to reach a host's replicas, None for everybody.

    By default that is where there are routers, and each of them has an address that the controller
    knows: a name that stands for none is a finding, and refused only where somebody set the option.
    """
    known = Known() if known is None else known
    wanted = options.get("replicas_ports_closed")
    by_default = wanted in (None, "")
    if not (groups.get("routers") if by_default else str(wanted).lower() in _TRUE):
        return None, ()
    more = options.get("replicas_reach_from") or ()
    more = more.split(",") if isinstance(more, str) else more
    names = [str(name) for name in (*_named(host, variables, groups, known), *more) if name != host]
    for name in names:
        if name not in known.addresses:
            known.addresses[name] = resolved(
                address_of(name, variables[name]) if name in variables else name
            )
    unknown = tuple(
        Finding("REPLICA-REACH", name, _WHY, minor=by_default)
        for name in dict.fromkeys(names)
        if not known.addresses[name]
    )
    if unknown:
        return None, unknown
    return sorted({address for name in names for address in known.addresses[name]}), ()


def with_reach(
    host: str, options: Mapping[str, Any], variables: Variables, groups: Groups
) -> dict[str, Any]:
    """Return the options of the role replicas with ``reach``; raise ApiaryError (REPLICA-REACH).

    Where an address is missing there is none: what is closed stays so.
    """
    if options["replicas_state"] != "present":
        return {**options, "reach": None}
    addresses, unknown = reach_of(host, options, variables, groups)
    if has_errors(unknown):
        raise ApiaryError(*unknown)
    return dict(options) if unknown else {**options, "reach": addresses}


def _named(host: str, variables: Variables, groups: Groups, known: Known) -> Iterator[str]:
    for group in knowledge("serving/reach.yml")["groups"]:
        yield from groups.get(group) or ()
    # Workers of an engine over hosts ask the first of them whether it answers.
    own = variables[host]
    deployments = own.get("apiary_deployments") or [own.get("apiary_deployment") or {}]
    layouts = [one.get("layout") for one in deployments]
    if any(isinstance(each, Mapping) and each.get("nodes", 1) != 1 for each in layouts):
        if not known.node_groups:
            for name in groups.get("gpu_hosts") or ():
                group = variables[name].get("apiary_node_group")
                known.node_groups.setdefault(group, []).append(name)
        yield from known.node_groups.get(own.get("apiary_node_group"), ())


@functools.cache
def resolved(address: str) -> tuple[str, ...]:
    """Return the addresses or networks of a text; none where it is a name that nobody knows.

    A name of loopback alone, such as Debian's own name in /etc/hosts, says nothing to others.
    """
    try:
        found = [ipaddress.ip_network(address.strip("[]"), strict=False)]
    except ValueError:
        try:
            answers = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return ()
        texts = {str(answer[4][0]).partition("%")[0] for answer in answers}
        found = [ipaddress.ip_network(text) for text in sorted(texts)]
    return tuple(str(network) for network in found if not network.is_loopback)
