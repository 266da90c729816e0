# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a host's exporters, on the controller: the adapter to plugin_utils.host.telemetry."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused, warn
from ..plugin_utils.documents import from_document, to_document
from ..plugin_utils.evidence.types import Evidence
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.given import given_evidence
from ..plugin_utils.host.role_options import plain
from ..plugin_utils.host.telemetry import Settings, decide, looks


class ActionModule(ActionBase):
    """The telemetry_host action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the plan of one host's exporters."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "settings": {"type": "dict", "default": {}},
                "evidence": {"type": "raw", "required": True},
            }
        )
        host = task_vars["inventory_hostname"]
        try:
            told = {**given_evidence(arguments["evidence"])[0], "host": host}
            evidence = from_document(Evidence, told, f"{host}: evidence")
            settings = from_document(
                Settings, plain(arguments["settings"]), f"{host}: the role telemetry's settings"
            )
            plan = decide(settings, evidence)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        warn(plan.findings)
        return {
            "changed": False,
            "plan": to_document(plan),
            "looks": looks(plan),
            "findings": to_document(plan.findings),
        }
