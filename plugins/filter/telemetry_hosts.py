# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Prometheus watches of an inventory, for the role `monitoring`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: telemetry_hosts
short_description: What Prometheus watches of an inventory
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Turns names of hosts into the address that Prometheus reaches each at (C(apiary_address), else
    C(ansible_host), else its name), its place, its exporters, and where its plans are.
positional: _input, hostvars, gpu_hosts, routers
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Ansible's variable of this name.
    type: dict
    required: true
  gpu_hosts:
    description: Those of the hosts that have GPUs.
    type: list
    elements: str
    default: []
  routers:
    description: Those of the hosts that are routers.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
monitoring_hosts: >-
  {{ (groups.gpu_hosts + groups.routers)
     | apiary.instinct.telemetry_hosts(hostvars, groups.gpu_hosts, groups.routers) }}
"""

RETURN = r"""
_value:
  description: >-
    A mapping for each host, with RV(ignore:host), RV(ignore:address), RV(ignore:artifacts),
    RV(ignore:rack), RV(ignore:failure_domain), RV(ignore:router_port), RV(ignore:exporters),
    RV(ignore:amd_port), RV(ignore:node_port), and RV(ignore:amd_packaged_only), whether AMD's
    exporter comes only where AMD has a package of it.
  type: list
  elements: dict
"""

from ..plugin_utils.host.telemetry.amd import way
from ..plugin_utils.router.types import RouterSettings

ADMIN_PORT = RouterSettings().admin_port


def telemetry_hosts(names, hostvars, gpu_hosts=(), routers=()):
    """Return the place of each host, and what is there to be read."""
    places = []
    for name in names:
        known = hostvars[name]
        rack = known.get("apiary_rack")
        method = known.get("telemetry_amd_method") or "auto"
        image = bool(known.get("telemetry_amd_digest"))
        amd = name in gpu_hosts and way(method, image, True) != "none"
        packaged_only = amd and way(method, image, False) == "none"
        root = known.get("apiary_artifacts") or "artifacts"
        places.append(
            {
                "host": name,
                "address": known.get("apiary_address") or known.get("ansible_host") or name,
                "artifacts": f"{root}/{name}" if name in gpu_hosts else None,
                "rack": rack,
                "failure_domain": known.get("apiary_failure_domain") or rack,
                "router_port": (
                    known.get("router_admin_port", ADMIN_PORT) if name in routers else None
                ),
                "exporters": ["amd", "node"] if amd else ["node"],
                "amd_port": known.get("telemetry_amd_port"),
                "node_port": known.get("telemetry_node_port"),
                "amd_packaged_only": packaged_only and not known.get("telemetry_amd_suite"),
            }
        )
    return places


class FilterModule:
    """Filters of telemetry."""

    def filters(self):
        return {"telemetry_hosts": telemetry_hosts}
