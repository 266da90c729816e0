# SPDX-License-Identifier: GPL-3.0-or-later

"""What an inventory says of its hosts, and what is wrong between them though each may be right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...deployment import Deployment
from ...documents import from_document
from ...findings import ApiaryError, Finding
from ...host.types import CONCERNS
from ...plan.nodes import Member, node_of, nodes_of
from ..names import address_of, fold


@dataclass(frozen=True)
class PlainSecret:
    """A secret that stands in an inventory file as it is; the value itself is not kept."""

    variable: str
    file: str


@dataclass(frozen=True)
class HostVariables:
    """One host as its inventory has it.

    ``names`` are all variables that the inventory gives it, ``values`` those of ours with their
    templates resolved; ``unresolved`` says why others could not be.
    """

    host: str
    groups: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[PlainSecret, ...] = ()


# Options of a role by name, as meta/argument_specs.yml describes each; roles by name.
Options = Mapping[str, Mapping[str, Any]]
Roles = Mapping[str, Options]


STEPS = (*CONCERNS, "replicas")
# What playbooks/site.yml runs where the inventory does not say.
_USUAL = ("rocm", "host_tuning", "weight_cache", "device_plugin", "replicas")
# The parts of a fleet that are no GPU hosts, each with its role.
_PARTS = {"routers": "router", "weights_writers": "weights"}


@dataclass(frozen=True)
class Scope:
    """The tags of a run, as Ansible has them: ("all",) for a run of everything."""

    tags: tuple[str, ...] = ("all",)
    skipped: tuple[str, ...] = ()

    def roles(self, host: HostVariables) -> frozenset[str]:
        """Return the roles whose variables a run of this scope reads of a host."""
        found = {role for part, role in _PARTS.items() if part in host.groups}
        # A play may have its target in groups that nobody knows here.
        if "gpu_hosts" in host.groups or not found:
            asked = host.values.get("apiary_concerns")
            found |= set(_USUAL) if asked is None else set(texts(asked)) & set(STEPS)
            found.add("acceptance")
        if "all" not in self.tags:
            found &= set(self.tags)
        found -= set(self.skipped)
        return frozenset(found | {"reboot"} if found & {"rocm", "host_tuning"} else found)

    def unread(self, host: HostVariables, roles: Roles) -> frozenset[str]:
        """Return the variables of a host that only roles outside of this scope read."""
        reading = self.roles(host)
        read = {name for role in reading & roles.keys() for name in roles[role]}
        return frozenset({name for role in roles.values() for name in role} - read)


EVERYTHING = Scope()


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list; of what is none, nothing."""
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(one for one in listed if isinstance(one, str))


# What routers of one group have to have in common, or clients notice which one they asked.
_SHARED = (
    "router_virtual_addresses",
    "router_virtual_id",
    "router_virtual_password",
    "router_api_keys",
    "router_experiments",
    "router_first_port",
    "router_ports",
    "router_shared_port",
)


def fleet_mistakes(hosts: Sequence[HostVariables]) -> Iterator[Finding]:
    """Yield mistakes that take more than one host to see."""
    gpu_hosts = [host for host in hosts if "gpu_hosts" in host.groups]
    routers = [host for host in hosts if "routers" in host.groups]
    yield from _both(gpu_hosts)
    yield from _addresses(gpu_hosts, [one for one in routers if one not in gpu_hosts])
    yield from _places(gpu_hosts)
    yield from _routers(routers)
    yield from _served(gpu_hosts, bool(routers))


def _both(gpu_hosts: Sequence[HostVariables]) -> Iterator[Finding]:
    for host in gpu_hosts:
        if "routers" in host.groups:
            yield Finding(
                "INVENTORY-TWO-PARTS",
                host.host,
                "is a GPU host and a router, whose CPUs and ports replicas then share",
            )


def _addresses(
    gpu_hosts: Sequence[HostVariables], routers: Sequence[HostVariables]
) -> Iterator[Finding]:
    """Yield hosts that are one host to Ansible, or to routers."""
    logins: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    served: defaultdict[str, list[str]] = defaultdict(list)
    for host in (*gpu_hosts, *routers):
        login = str(host.values.get("ansible_host") or host.host)
        logins[login, str(host.values.get("ansible_port") or 22)].append(host.host)
        served[address_of(host.host, host.values)].append(host.host)
        for virtual in texts(host.values.get("router_virtual_addresses")):
            # All routers share it.
            others = served[virtual.partition("/")[0]]
            if "virtual address" not in others:
                others.append("virtual address")
    for (address, _port), names in logins.items():
        if len(names) > 1:
            message = f"{fold(names)} are all reached at {address}"
            yield from _same(names, message, "ansible_host", minor=False)
    together = {frozenset(names) for names in logins.values()}
    for address, names in served.items():
        if len(names) > 1 and frozenset(names) not in together:
            real = [name for name in names if name != "virtual address"]
            virtual = " and the routers' virtual one" if len(real) < len(names) else ""
            message = f"{address} is the address of {fold(real)}{virtual}"
            # Without routers only people meet there, through ports of their own.
            yield from _same(real, message, "apiary_address", minor=not routers)


def _same(names: Sequence[str], message: str, variable: str, *, minor: bool) -> Iterator[Finding]:
    for name in names:
        yield Finding("INVENTORY-ADDRESS-TWICE", name, message, minor=minor, variable=variable)


def _places(hosts: Sequence[HostVariables]) -> Iterator[Finding]:
    """Yield hosts of which nobody knows what fails with them, and racks that are two."""
    known = [host for host in hosts if _place(host, "rack") or _place(host, "failure_domain")]
    for host in hosts:
        if _place(host, "failure_domain") and not _place(host, "rack"):
            yield Finding(
                "INVENTORY-NO-RACK",
                host.host,
                "has a failure domain and no rack, so maps and groups by rack leave it out",
                minor=True,
            )
        elif known and not _place(host, "rack"):
            yield Finding(
                "INVENTORY-NO-RACK",
                host.host,
                "has no rack while others have one, so it may be changed at once with any of them",
            )
    spots: defaultdict[str, defaultdict[tuple[str, str], list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for host in known:
        spots[_place(host, "rack")][_place(host, "site"), _place(host, "row")].append(host.host)
    for rack, rows in spots.items():
        if rack and len(rows) > 1:
            where = "; ".join(
                f"{fold(names)} at {'/'.join(filter(None, spot)) or 'no site or row'}"
                for spot, names in rows.items()
            )
            for name in (name for names in rows.values() for name in names):
                yield Finding(
                    "INVENTORY-RACK-TWICE",
                    name,
                    f"rack {rack} stands in several places ({where}), and counts as one",
                )


def _place(host: HostVariables, kind: str) -> str:
    return str(host.values.get(f"apiary_{kind}") or "")


def _routers(routers: Sequence[HostVariables]) -> Iterator[Finding]:
    """Yield settings that differ between routers, without their values: some are secrets."""
    if len(routers) < 2:
        return
    for name in _SHARED:
        first = routers[0].values.get(name)
        differ = [one.host for one in routers if one.values.get(name) != first]
        for host in differ:
            yield Finding(
                "INVENTORY-ROUTERS-DIFFER",
                host,
                f"{name} is not that of {routers[0].host}, and clients ask any of the routers",
                name=name,
            )


def _served(hosts: Sequence[HostVariables], routed: bool) -> Iterator[Finding]:
    """Yield deployments that hosts do not share as they would have to."""
    members: defaultdict[str, list[tuple[HostVariables, Deployment]]] = defaultdict(list)
    read: dict[int, Deployment | None] = {}
    for host in hosts:
        for document in _asked(host.values):
            if id(document) not in read:
                read[id(document)] = _read(document)
            deployment = read[id(document)]
            if deployment is not None:
                members[deployment.name].append((host, deployment))
    for name, serving in members.items():
        yield from _one_model(name, serving, minor=not routed)
        if any(nodes_of(deployment) > 1 for _host, deployment in serving):
            yield from _groups(serving)


def _asked(values: Mapping[str, Any]) -> Sequence[Any]:
    several = values.get("apiary_deployments")
    if isinstance(several, (list, tuple)) and several:
        return several
    return [values["apiary_deployment"]] if values.get("apiary_deployment") else []


def _read(document: Any) -> Deployment | None:
    """Return a deployment, None where it is none: that is told of its host alone."""
    try:
        return from_document(Deployment, document, "")
    except ApiaryError:
        return None


def _one_model(
    name: str, serving: Sequence[tuple[HostVariables, Deployment]], *, minor: bool
) -> Iterator[Finding]:
    if len({deployment.model.name for _host, deployment in serving}) < 2:
        return
    first = serving[0][1].model.name
    for host, deployment in serving:
        if deployment.model.name != first:
            yield Finding(
                "INVENTORY-MODELS-DIFFER",
                host.host,
                f"deployment {name} is {deployment.model.name} here and {first} on "
                f"{serving[0][0].host}; routers make one endpoint of each name",
                minor=minor,
            )


def _groups(serving: Sequence[tuple[HostVariables, Deployment]]) -> Iterator[Finding]:
    """Yield groups of hosts that are too small or too large for replicas over several hosts."""
    members = [
        Member(
            host.host,
            address_of(host.host, host.values),
            _place(host, "node_group") or None,
            deployment,
        )
        for host, deployment in serving
    ]
    # Of those without a group the last one is left over, if any is.
    for one in {one.group: one for one in members}.values():
        if one.deployment is None:
            continue
        try:
            node_of(one.host, members, one.deployment)
        except ApiaryError as refusal:
            for finding in refusal.findings:
                yield finding.about(one.host)
