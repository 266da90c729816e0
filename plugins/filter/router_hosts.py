# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a router finds hosts, and their plans."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_hosts
short_description: Where a router finds hosts and their plans
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Turns names of hosts into the address that routers reach each at (C(apiary_address), else
    C(ansible_host), else its name) and the directory of the controller that has its plans.
positional: _input, hostvars
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
"""

EXAMPLES = r"""
router_plans: "{{ groups.gpu_hosts | apiary.instinct.router_hosts(hostvars) }}"
"""

RETURN = r"""
_value:
  description: A mapping for each host, RV(ignore:host), RV(ignore:address), RV(ignore:artifacts).
  type: list
  elements: dict
"""


def router_hosts(names, hostvars):
    """Return the place of each host and of its plans."""
    places = []
    for name in names:
        known = hostvars[name]
        address = known.get("apiary_address") or known.get("ansible_host") or name
        root = known.get("apiary_artifacts") or "artifacts"
        places.append({"host": name, "address": address, "artifacts": f"{root}/{name}"})
    return places


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_hosts": router_hosts}
