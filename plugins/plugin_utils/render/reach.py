# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who reaches the ports of replicas: a table of nftables of each deployment, and what loads it.

Not `IPAddressDeny=` of the units: that filters what an engine sends as well (traces, images that a
prompt names), and none of Docker's containers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..documents import knowledge
from ..host.sandbox import sandbox
from ..plan.ports import agent_port
from ..plan.types import Plan
from .files import UNITS, templates

Resource = Mapping[str, Any]


def closed(plan: Plan, addresses: Sequence[str], required: bool = False) -> Iterator[Resource]:
    """Yield what lets these addresses and networks alone reach the replicas of a plan.

    Whether ``required`` or not, it is not begun while somebody else is connected to them.
    """
    name = plan.deployment.name
    rules, unit = _paths(name)
    networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
    facts = {"name": name, "rules": rules, "nft": knowledge("serving/reach.yml")["program"]}
    families = {
        family: sorted({str(network) for network in networks if network.version == version})
        for family, version in (("ip", 4), ("ip6", 6))
    }
    units = [replica.unit for replica in plan.replicas]
    more = {"units": units, "sandbox": sandbox("apiary-NAME-ports.service")}
    texts: dict[str, tuple[str, dict[str, Any]]] = {
        rules: ("ports.nft.j2", {"ports": tuple(_ports(plan)), "families": families}),
        f"{UNITS}/{unit}": ("ports.service.j2", more),
    }
    yield {"kind": "packages", "names": [knowledge("serving/reach.yml")["package"]]}
    for path, (template, values) in texts.items():
        content = templates().get_template(template).render(**facts, **values)
        yield {"kind": "file", "path": path, "content": content}
    yield {
        "kind": "service",
        "name": unit,
        "enabled": True,
        "state": "started",
        "restart_after": [f"file {UNITS}/{unit}"],
        "reload_after": [f"file {rules}"],
        "peers": {
            "ports": list(_ports(plan)),
            "addresses": [str(network) for network in networks],
            "required": required,
        },
    }


def opened(deployment: str) -> Iterator[Resource]:
    """Yield what takes the table away again: its unit does that when it stops."""
    rules, unit = _paths(deployment)
    yield {"kind": "service", "name": unit, "enabled": False, "state": "stopped"}
    yield {"kind": "file", "path": f"{UNITS}/{unit}"}
    yield {"kind": "file", "path": rules}


def _paths(deployment: str) -> tuple[str, str]:
    return f"/etc/apiary/{deployment}/ports.nft", f"apiary-{deployment}-ports.service"


def _ports(plan: Plan) -> Iterator[str]:
    """Yield ports as nft takes them; of an engine over hosts only what no other host needs."""
    for replica in plan.replicas:
        yield str(replica.port)
        last = agent_port(replica)
        if last is not None:
            first = replica.internal_port
            yield str(last) if first is None else f"{first}-{last}"
