# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys that engines ask for, from what their hosts' inventory says."""

from __future__ import annotations

from ..plugin_utils.documents import knowledge


def router_engine_keys(names, hostvars):
    """Return the key of each deployment that has one."""
    variable = knowledge("router.yml")["engine_key"]["variable"]
    keys = {}
    for name in names:
        known = hostvars[name]
        one = known.get("apiary_deployment")
        deployments = known.get("apiary_deployments") or ([one] if one else [])
        secrets = known.get("replicas_secrets") or {}
        for deployment in deployments:
            value = secrets.get(variable)
            if variable in (deployment.get("secrets") or ()) and value:
                keys.setdefault(deployment["name"], value if isinstance(value, str) else value[0])
    return keys


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_engine_keys": router_engine_keys}
