# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a host on the controller: the adapter from Ansible to plugin_utils.acceptance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ..plugin_utils.acceptance.accept import accept, burn_in, due, to_measure
from ..plugin_utils.acceptance.types import TESTS, Acceptance, Measured, Settings
from ..plugin_utils.adapters import Deciding, host_of, module_result
from ..plugin_utils.documents import dumps, from_document, to_document
from ..plugin_utils.evidence.types import Evidence, bounded, requested
from ..plugin_utils.files import utc_now, write_text
from ..plugin_utils.findings import Finding, error, has_errors
from ..plugin_utils.fleet.saved import load
from ..plugin_utils.fleet.types import Survey
from ..plugin_utils.host.resources import with_overrides
from ..plugin_utils.host.role_options import options_of, read_role, settings_of
from ..plugin_utils.host.types import CONCERNS, decide

_NO_SETTINGS = ("evidence", "concerns", "dest")


class ActionModule(Deciding):
    """The acceptance action."""

    def decide(self, arguments, task_vars):
        """Return the acceptance of one host; save it to ``dest`` unless in check mode."""
        host = task_vars["inventory_hostname"]
        requested = {name: value for name, value in arguments.items() if name not in _NO_SETTINGS}
        directory = Path(arguments["dest"]).absolute() if arguments["dest"] else None
        saved = None if self._task.check_mode else directory
        try:
            settings = from_document(Settings, requested, f"{host}: acceptance")
            bundle = arguments["evidence"] or self._gather(arguments["concerns"], task_vars)
            # The host is named as the inventory names it: that is the name its operator knows.
            bundle = {**bundle, "host": host}
            if settings.burn_in != "never":
                return self._burn_in(bundle, settings, directory, saved, task_vars)
            plans, resources = self._decided(arguments["concerns"], bundle, task_vars)
            reports = self._inspect(resources, task_vars)
            wanted = to_measure(bundle, settings)
            measured = self._measure(wanted, saved, task_vars)
            judged = accept(bundle, settings, plans, reports, measured, wanted.refused)
            if saved:
                write_text(saved / "acceptance.json", dumps(judged))
        except AnsibleConnectionFailure as failure:
            if saved:
                # Or the report would go by the acceptance of the day when it was still there.
                cause = Finding("FLEET-UNREACHABLE", host, str(failure).strip() or "no answer")
                lost = Survey(host, utc_now(), reached=False, findings=(cause,))
                write_text(saved / "survey.json", dumps(lost))
            raise
        return _result(judged)

    def _burn_in(self, bundle, settings, directory, saved, task_vars):
        """Load the GPUs of a host that is to show first that they bear it; record what was run."""
        records = [
            load(Acceptance, directory / name) if directory else None
            for name in ("burn-in.json", "acceptance.json")
        ]
        why = due(bundle, settings, *records)
        wanted = to_measure(bundle, replace(settings, tests=TESTS if why else ()))
        measured = self._measure(wanted, saved, task_vars) if why else Measured()
        judged = burn_in(bundle, settings, measured, wanted.refused)
        # Programs of which nothing could be read have shown nothing.
        if saved and any(check.state in ("pass", "fail") for check in judged.checks):
            write_text(saved / "burn-in.json", dumps(judged))
        untried = {"summary": ["not run in check mode"]} if why and self._task.check_mode else {}
        return {**_result(judged), **untried, "burn_in": why}

    def _gather(self, concerns, task_vars):
        """Return fresh evidence of the host."""
        scopes = {"gpu", "acceptance", *(scope for one in concerns for scope in CONCERNS[one])}
        begun = utc_now()
        bundle = self._module("evidence_info", requested(sorted(scopes)), task_vars)
        # By this clock: a host's may be wrong, and reports compare times of many hosts.
        bounded(bundle.get("evidence"), host_of(self, task_vars))
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

    def _measure(self, wanted, saved, task_vars):
        """Return what the host answers; it is not asked where nothing is to be measured."""
        if wanted.nothing:
            return Measured()
        arguments = {"requested": to_document(wanted)}
        result = self._module("acceptance_probe", arguments, task_vars)
        answer = {name: result[name] for name in ("health", "read", "runs") if name in result}
        host = task_vars["inventory_hostname"]
        measured = from_document(Measured, answer, f"{host}: measured")
        # Names of files: they are those that were asked for, or nothing is.
        known = {(run["test"], run["name"]) for run in wanted.runs}
        if unknown := {(ran.test, ran.name) for ran in measured.runs} - known:
            raise error("ACCEPT-PROBE", host, f"answers of what was not run: {sorted(unknown)}")
        for ran in measured.runs:
            if saved and ran.argv:
                write_text(saved / "acceptance" / f"{ran.test}-{ran.name}.txt", ran.output)
        return measured

    def _module(self, name, arguments, task_vars):
        """Run one of our modules on the host; raise ACCEPT-PROBE where it fails."""
        try:
            return module_result(self, name, arguments, task_vars)
        except AnsibleActionFail as failure:
            host = task_vars["inventory_hostname"]
            raise error("ACCEPT-PROBE", host, f"cannot be measured: {failure}") from failure


def _result(judged):
    return {
        "acceptance": to_document(judged),
        "accepted": judged.accepted,
        "findings": to_document(judged.findings),
        "summary": list(judged.summary()),
    }
