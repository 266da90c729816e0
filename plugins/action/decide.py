# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a role of a host on the controller: the adapter from Ansible to plugin_utils.host."""

from __future__ import annotations

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.documents import from_document, to_document
from ..plugin_utils.evidence.types import Evidence
from ..plugin_utils.findings import ApiaryError, stop_on_errors
from ..plugin_utils.fleet.given import given_evidence
from ..plugin_utils.host.resources import with_overrides
from ..plugin_utils.host.role_options import interpreter, options_of, read_role, settings_of
from ..plugin_utils.host.types import decide, failing
from ..plugin_utils.role_plans import ROLES, Inventory, decide_replicas, decide_role


class ActionModule(Deciding):
    """The decide action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return the plan and the resources of one role for one host."""
        host = task_vars["inventory_hostname"]
        role, settings = arguments["role"], arguments["settings"]
        evidence, options = None, {}
        if arguments["evidence"] or role != "replicas":
            # The host is named as the inventory names it: its operator uses that name.
            document = {**given_evidence(arguments["evidence"])[0], "host": host}
            evidence = from_document(Evidence, document, f"{host}: evidence")
        if settings is None:
            options = options_of(read_role(role), task_vars, self._templar, host)
        inventory = Inventory(task_vars["hostvars"], task_vars["groups"])
        if role == "replicas":
            checking = self._task.check_mode
            plan = decide_replicas(host, arguments["plan"], options, evidence, checking, inventory)
        elif role in ROLES:
            python = interpreter(task_vars, self._templar)

            def plan_of_role(name):
                own = options_of(read_role(name), task_vars, self._templar, host)
                return decide(name, settings_of(name, own), evidence)

            plan = decide_role(
                role, options, evidence, python, self._task.check_mode, inventory, plan_of_role
            )
        else:
            plan = decide(
                role, settings_of(role, options) if settings is None else settings, evidence
            )
        if arguments["refuse"]:
            stop_on_errors(plan.findings)
        if arguments["require"] and (wrong := failing(plan)):
            raise ApiaryError(*wrong)
        resources = with_overrides(role, plan.resources, options)
        warn(plan.findings)
        return {
            "plan": {key: value for key, value in to_document(plan).items() if key != "resources"},
            "resources": resources,
            "findings": to_document(plan.findings),
        }
