# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply what a survey of this run decided for a host: the adapter to fleet.applying."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils.adapters import Deciding, gathered, module_result, warn
from ..plugin_utils.documents import dumps
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import ApiaryError, error
from ..plugin_utils.fleet.applying import Pending, applied, concerns_of, refusals, role_of
from ..plugin_utils.fleet.given import leave, pending
from ..plugin_utils.fleet.saved import save_documents
from ..plugin_utils.host.role_options import options_of, read_role, settings_of
from ..plugin_utils.host.types import CONCERNS, decide, failing


class ActionModule(Deciding):
    """The apply action."""

    def decide(self, arguments: dict, variables: dict) -> dict:
        """Converge the roles in turn; in check mode return what the survey saw."""
        host, roles = variables["inventory_hostname"], arguments["roles"]
        left, checking = pending(host), self._task.check_mode
        if not roles:
            return {"resources": {}, "reboot": [], "stale": False}
        if left is None:
            raise error("FLEET-SURVEY", host, "was not surveyed in this run")
        if refused := refusals(left, roles, checking):
            raise ApiaryError(*refused)
        warn(finding for item in left.survey.concerns for finding in _findings(item, roles))
        others = [role for role in roles if role != "reboot"]
        reports, changed = self._apply(left, others, variables)
        reboot = [
            reason
            for item in left.survey.concerns
            for reason in (item.reboot if role_of(item.concern) in roles else ())
        ]
        if "rocm" in changed and not checking:
            # What is installed now says whether a reboot is needed, and whether one would help.
            reboot = [reason for reason in reboot if reason not in _reasons(left, "rocm")]
            reboot = [*self._verified("rocm", host, variables), *reboot]
        if "reboot" in roles and not any(item.reboot for item in left.survey.concerns):
            # Nothing is to be rebooted: what an earlier reboot recorded goes.
            more, also = self._apply(left, ["reboot"], variables)
            reports, changed, others = [*reports, *more], changed | also, roles
        if not checking:
            self._save(host, arguments["dest"], applied(left, others), "replicas" in roles)
        return {
            "changed": bool(changed),
            "diff": [entry for report in reports for entry in _diff(report)],
            "resources": {
                role: [item["resource"] for item in reports if item["role"] == role]
                for role in sorted({item["role"] for item in reports if item["changed"]})
            },
            "reboot": list(dict.fromkeys(reboot)),
            # Later decisions follow from the driver and what it shows of the GPUs.
            "stale": "rocm" in changed and not checking,
        }

    def _apply(self, left: Pending, roles: list, variables: dict) -> tuple[list, set]:
        """Return converge's reports, and the roles that changed something."""
        reports: list = []
        for concern in concerns_of(left, roles):
            if self._task.check_mode:
                reports += left.reports.get(concern, ())
                continue
            arguments = {"resources": left.resources[concern]}
            if role_of(concern) in ("engine", "replicas"):
                arguments["secrets"] = self._secrets(role_of(concern), variables)
            try:
                reports += module_result(self, "converge", arguments, variables)["resources"]
            except AnsibleActionFail as failure:
                # What was converged before is changed all the same.
                done = any(report["changed"] for report in reports)
                failure._result = {**failure._result, "role": concern}
                failure._result["changed"] = done or failure._result.get("changed", False)
                raise
        return reports, {role_of(report["role"]) for report in reports if report["changed"]}

    def _secrets(self, role: str, variables: dict) -> dict:
        name = f"{role}_secrets"
        value = variables.get(name, read_role(role).defaults[name])
        return self._templar.template(value) or {}

    def _verified(self, role: str, host: str, variables: dict) -> tuple[str, ...]:
        """Return why a role that was just converged wants a reboot; refuse what fails still."""
        evidence = gathered(self, CONCERNS[role], variables)
        options = options_of(read_role(role), variables, self._templar, host)
        plan = decide(role, settings_of(role, options), evidence)
        if wrong := failing(plan):
            raise ApiaryError(*wrong)
        return plan.reboot

    def _save(self, host: str, dest: str | None, left: Pending, served: bool) -> None:
        leave(host, left)
        if dest is None:
            return
        directory = Path(dest).absolute()
        if left.whole:
            write_text(directory / "survey.json", dumps(left.survey))
        if served and left.saved:
            save_documents(directory, left.saved)


def _findings(concern, roles):
    return concern.findings if role_of(concern.concern) in roles else ()


def _reasons(left, role):
    return [
        reason for item in left.survey.concerns if item.concern == role for reason in item.reboot
    ]


def _diff(report):
    steps = "".join(f"{step}\n" for step in report["steps"])
    return [*report["diff"], *([{"prepared": steps}] if steps else [])]
