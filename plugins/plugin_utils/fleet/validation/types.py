# SPDX-License-Identifier: GPL-3.0-or-later

"""What an inventory says of its hosts, and which roles a run would give to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...host.types import CONCERNS


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
