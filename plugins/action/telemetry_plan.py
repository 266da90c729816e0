# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what is watched, on the controller: the adapter from Ansible to plugin_utils.telemetry."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused, warn
from ..plugin_utils.documents import from_document, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.saved import (
    quarantined,
    saved_plans,
    saved_system,
    saved_topology,
)
from ..plugin_utils.host.telemetry.amd import has_package
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.telemetry.dashboards import dashboards
from ..plugin_utils.telemetry.plan import telemetry_plan
from ..plugin_utils.telemetry.types import MonitoredHost, TelemetrySettings


class ActionModule(ActionBase):
    """The telemetry_plan action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the files of Prometheus, Alertmanager and Grafana."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "hosts": {
                    "type": "list",
                    "elements": "dict",
                    "required": True,
                    "options": {
                        "host": {"type": "str", "required": True},
                        "address": {"type": "str", "required": True},
                        "plans": {"type": "list", "elements": "dict"},
                        "artifacts": {"type": "path"},
                        "rack": {"type": "str"},
                        "failure_domain": {"type": "str"},
                        "router_port": {"type": "int"},
                        "exporters": {
                            "type": "list",
                            "elements": "str",
                            "choices": ["amd", "node"],
                            "default": ["amd", "node"],
                        },
                        "amd_port": {"type": "int"},
                        "node_port": {"type": "int"},
                        "amd_packaged_only": {"type": "bool", "default": False},
                    },
                },
                "settings": {"type": "dict", "default": {}},
            }
        )
        subject = f"{task_vars['inventory_hostname']}: the settings"
        try:
            settings = from_document(TelemetrySettings, arguments["settings"], subject)
            plan = telemetry_plan([self._host(one) for one in arguments["hosts"]], settings)
            boards = dashboards(plan)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        warn(plan.findings)
        return {
            "changed": False,
            "files": plan.files,
            "dashboards": boards,
            "findings": to_document(plan.findings),
        }

    @staticmethod
    def _host(one):
        directory = Path(one["artifacts"]).absolute() if one["artifacts"] else None
        plans = tuple(plan_of(plan, one["host"]) for plan in one["plans"] or [])
        if directory and not plans and not quarantined(directory):
            plans = saved_plans(directory)
        exporters = tuple(one["exporters"])
        if directory and one["amd_packaged_only"] and not has_package(saved_system(directory)):
            exporters = tuple(name for name in exporters if name != "amd")
        return MonitoredHost(
            one["host"],
            one["address"],
            one["rack"],
            one["failure_domain"],
            plans,
            saved_topology(directory) if directory else None,
            one["router_port"],
            exporters,
            one["amd_port"],
            one["node_port"],
        )
