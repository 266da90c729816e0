# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a host on the controller: the adapter from Ansible to plugin_utils.acceptance."""

from __future__ import annotations

import datetime
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure

from ..plugin_utils.acceptance.accept import accept, to_measure
from ..plugin_utils.acceptance.types import Measured, Settings
from ..plugin_utils.adapters import Deciding, module_result
from ..plugin_utils.documents import dumps, from_document, to_document
from ..plugin_utils.evidence.scopes import bounded, requested
from ..plugin_utils.evidence.types import Evidence
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import Finding, error, has_errors
from ..plugin_utils.fleet.types import Survey
from ..plugin_utils.host.concerns import CONCERNS, decide
from ..plugin_utils.host.resources import with_overrides
from ..plugin_utils.host.role_options import options_of, read_role, settings_of

_NO_SETTINGS = ("evidence", "concerns", "dest")


class ActionModule(Deciding):
    """The acceptance action."""

    def decide(self, arguments, task_vars):
        """Return the acceptance of one host; save it to ``dest`` unless in check mode."""
        host = task_vars["inventory_hostname"]
        dest, concerns = arguments["dest"], arguments["concerns"]
        requested = {name: value for name, value in arguments.items() if name not in _NO_SETTINGS}
        try:
            settings = from_document(Settings, requested, f"{host}: acceptance")
            bundle = arguments["evidence"] or self._gather(concerns, task_vars)
            # The host is named as the inventory names it: that is the name its operator knows.
            bundle = {**bundle, "host": host}
            plans, resources = self._decided(concerns, bundle, task_vars)
            reports = self._inspect(resources, task_vars)
            wanted = to_measure(bundle, settings)
            measured = self._measure(wanted, task_vars)
            judged = accept(bundle, settings, plans, reports, measured, wanted.refused)
            if dest and not self._task.check_mode:
                directory = Path(dest).absolute()
                for ran in measured.runs:
                    if ran.argv:
                        name = f"{ran.test}-{ran.name}.txt"
                        write_text(directory / "acceptance" / name, ran.output)
                write_text(directory / "acceptance.json", dumps(judged))
        except AnsibleConnectionFailure as failure:
            if dest and not self._task.check_mode:
                # Or the report would go by the acceptance of the day when it was still there.
                lost = Survey(host, _now(), reached=False, findings=(_unreachable(host, failure),))
                write_text(Path(dest).absolute() / "survey.json", dumps(lost))
            raise
        return {
            "acceptance": to_document(judged),
            "accepted": judged.accepted,
            "findings": to_document(judged.findings),
            "summary": list(judged.summary()),
        }

    def _gather(self, concerns, task_vars):
        """Return fresh evidence of the host."""
        scopes = {"gpu", "acceptance", *(scope for one in concerns for scope in CONCERNS[one])}
        begun = _now()
        bundle = self._module("evidence_info", requested(sorted(scopes)), task_vars)
        # By this clock: a host's may be wrong, and reports compare times of many hosts.
        bounded(bundle.get("evidence"), task_vars["inventory_hostname"])
        return {**bundle["evidence"], "collected_at": begun}

    def _decided(self, concerns, bundle, task_vars):
        """Return the roles' plans of the evidence, and the resources of those not refused."""
        host = task_vars["inventory_hostname"]
        evidence = from_document(Evidence, bundle, f"{host}: evidence") if concerns else None
        plans, resources = {}, []
        for name in concerns:
            options = options_of(read_role(name), task_vars, self._templar, host)
            plan = plans[name] = decide(name, settings_of(name, options), evidence)
            if not has_errors(plan.findings):
                resources += with_overrides(name, plan.resources, options)
        return plans, to_document(resources)

    def _inspect(self, resources, task_vars):
        """Return what converge would change of them; one that is refused is in the reports, too."""
        if not resources:
            return []
        arguments = {"resources": resources}
        return module_result(
            self, "converge", arguments, task_vars, partial="resources", check=True
        )["resources"]

    def _measure(self, wanted, task_vars):
        """Return what the host answers; it is not asked where nothing is to be measured."""
        if wanted.nothing:
            return Measured()
        requested = {"requested": to_document(wanted)}
        result = self._module("acceptance_probe", requested, task_vars)
        answer = {name: result[name] for name in ("health", "read", "runs") if name in result}
        return from_document(Measured, answer, f"{task_vars['inventory_hostname']}: measured")

    def _module(self, name, arguments, task_vars):
        """Run one of our modules on the host; raise ACCEPT-PROBE where it fails."""
        result = self._execute_module(
            module_name=f"apiary.instinct.{name}", module_args=arguments, task_vars=task_vars
        )
        if result.get("unreachable"):
            raise AnsibleConnectionFailure(result.get("msg", ""))
        if result.get("failed"):
            raise error(
                "ACCEPT-PROBE",
                task_vars["inventory_hostname"],
                f"cannot be measured: {result.get('msg') or result}",
            )
        return result


def _now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _unreachable(host, failure):
    return Finding("FLEET-UNREACHABLE", host, str(failure).strip() or "no answer")
