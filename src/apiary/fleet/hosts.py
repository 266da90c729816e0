# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a fleet and where they stand, as an Ansible inventory has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

from apiary.app.ask_ansible import ask_inventory, warnings_of

GROUP = "gpu_hosts"
ARTIFACTS = "artifacts"
_NAMES = knowledge("variables.yml")
VARIABLES = (*_NAMES["places"], *_NAMES["metrics"])


@dataclass(frozen=True)
class FleetHost:
    """One host: its other groups, by name, and the place that its variables say.

    ``domain`` is what fails as one: apiary_failure_domain, else the rack; None is nobody's but its
    own. ``artifacts`` is the directory with one directory a host. ``addresses`` are those that the
    inventory gives it, ``metrics`` what knowledge/variables.yml names.
    ``spans`` says that replicas of its own may be on other hosts, too.
    """

    name: str
    groups: tuple[str, ...] = ()
    domain: str | None = None
    rack: str | None = None
    row: str | None = None
    site: str | None = None
    artifacts: str = ARTIFACTS
    addresses: tuple[str, ...] = ()
    metrics: Mapping[str, str | None] = field(default_factory=dict)
    spans: bool = False


@dataclass(frozen=True)
class Hosts:
    """The ``hosts`` that were asked for, in the inventory's order, of ``total`` without a limit.

    ``beside`` are the members of routers and monitoring, which learn of changes. ``localhost`` says
    whether the inventory has it.
    """

    hosts: tuple[FleetHost, ...]
    total: int
    beside: tuple[str, ...] = ()
    localhost: bool = False


def read_hosts(
    sources: Sequence[str],
    limit: str | None = None,
    pattern: str = GROUP,
    vault_password_files: Sequence[str] = (),
    extra: Sequence[str] = (),
    extra_vars: Mapping[str, Any] | None = None,
) -> Hosts:
    """Return the hosts of a pattern that ``limit`` leaves; no sources are Ansible's own inventory.

    ``extra`` are files of -e ("@FILE") and ``extra_vars`` its values, which go by no command line.
    Raises FILE-UNREADABLE, PROBE-INVENTORY or PROBE-NO-HOSTS.
    """
    where = ", ".join(sources) or "inventory"
    request = {"patterns": [pattern], "variables": VARIABLES, "connection": False}
    values = [*extra, *([json.dumps(extra_vars)] if extra_vars else [])]
    answer, printed = ask_inventory(sources, limit, request, vault_password_files, values)
    total = answer["matched"][pattern]
    if not total:
        raise error(
            "PROBE-NO-HOSTS",
            where,
            "; ".join([f"the inventory has no hosts in {pattern}", *warnings_of(printed)])[:2000],
        )
    if not answer["hosts"]:
        raise error(
            "PROBE-NO-HOSTS",
            where,
            f"--limit {limit} leaves none of the {total} hosts in {pattern}",
        )
    return Hosts(
        tuple(_host(name, entry, pattern) for name, entry in answer["hosts"].items()),
        total,
        tuple(answer["beside"]),
        answer["localhost"],
    )


def _host(name: str, entry: Mapping[str, Any], pattern: str) -> FleetHost:
    first = {variable: entry[variable][0] if entry[variable] else None for variable in VARIABLES}
    addresses = dict.fromkeys((*entry["ansible_host"], *entry["apiary_address"]))
    return FleetHost(
        name=name,
        groups=tuple(group for group in entry["groups"] if group != pattern),
        domain=first["apiary_failure_domain"] or first["apiary_rack"],
        rack=first["apiary_rack"],
        row=first["apiary_row"],
        site=first["apiary_site"],
        artifacts=first["apiary_artifacts"] or ARTIFACTS,
        addresses=tuple(address for address in addresses if address != name),
        metrics={name: first[name] for name in _NAMES["metrics"]},
        spans=bool(entry["spans"]),
    )
