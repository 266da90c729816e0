# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change means for one host: the adapter from Ansible to plugin_utils.rollout."""

from __future__ import annotations

from dataclasses import replace

from ansible.errors import AnsibleActionFail

from ..plugin_utils.adapters import Deciding, module_result
from ..plugin_utils.documents import from_document, knowledge, to_document
from ..plugin_utils.evidence.types import Evidence
from ..plugin_utils.findings import ApiaryError, Finding, error, has_errors
from ..plugin_utils.host.resources import with_overrides
from ..plugin_utils.host.role_options import options_of, read_role
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.plan.types import Plan
from ..plugin_utils.render.replicas import ENGINE_SCOPE, decide
from ..plugin_utils.rollout.compare import BACK, compare_answers
from ..plugin_utils.rollout.goal import Goal, chosen_plan, goal_of_plan, goal_of_release
from ..plugin_utils.rollout.read import situation_of
from ..plugin_utils.rollout.routers import cannot_drain, read_answers
from ..plugin_utils.run_owner import is_dead, owner


class ActionModule(Deciding):
    """The rollout_look action."""

    rules = {"required_one_of": [("plans", "release")]}  # noqa: RUF012 - as Ansible has them

    def decide(self, arguments, task_vars):
        """Return what the host is to serve, its situation, and how its replicas must answer."""
        host = task_vars["inventory_hostname"]
        goal, reported, note = self._goal(host, arguments, task_vars)
        return self._inspect(host, arguments, goal, reported, task_vars) | {"note": note}

    def _goal(self, host: str, arguments: dict, variables: dict) -> tuple[Goal, dict, str]:
        """Return the goal, what the host runs, and what a person should know of the choice."""
        name = arguments["deployment"]
        if arguments["release"] is None:
            plans = [plan_of(one, f"{host}: plan") for one in arguments["plans"]]
            plan = chosen_plan(plans, name, host)
            goal = goal_of_plan(plan, self._resources(host, plan, variables), owner())
            name = plan.deployment.name
            return goal, module_result(self, "rollout_info", {"deployment": name}, variables), ""
        request = {"deployment": name, "release": arguments["release"]}
        reported, note = module_result(self, "rollout_info", request, variables), ""
        if reported["release"] is None:
            note = (
                f"{host} is back on {reported['current']} already; "
                f"name another release with rollback_to: {', '.join(reported['releases'])}"
            )
            request["release"] = "current"
            reported = module_result(self, "rollout_info", request, variables)
        return goal_of_release(reported["release"]), reported, note

    def _resources(self, host: str, plan: Plan, variables: dict) -> list[dict]:
        """Return the resources of the role replicas, which a rolling change drains first."""
        options = options_of(read_role("replicas"), variables, self._templar, host)
        evidence = None
        if plan.deployment.engine.runtime != "native":
            report = module_result(self, "evidence_info", {"scopes": [ENGINE_SCOPE]}, variables)
            document = {**report["evidence"], "host": host}
            evidence = from_document(Evidence, document, f"{host}: evidence")
        later = self._task.check_mode
        decided = decide(plan, options, evidence, restart=True, engine_later=later)
        if has_errors(decided.findings):
            raise ApiaryError(*decided.findings)
        return with_overrides("replicas", decided.resources, options)

    def _would(self, host: str, goal: Goal, variables: dict) -> dict:
        """Return what converging the replicas would do."""
        secrets = {}
        if not goal.release:
            options = options_of(read_role("replicas"), variables, self._templar, host)
            secrets = options["replicas_secrets"]
        request = {"resources": [*goal.prepare, goal.replicas], "secrets": secrets}
        report = module_result(self, "converge", request, variables, check=True)
        name = f"replicas {goal.replicas['deployment']}"
        ours = [item for item in report["resources"] if item["resource"] == name]
        return {**ours[0].get("result", {}), "changed": ours[0]["changed"]} if ours else {}

    def _inspect(
        self, host: str, arguments: dict, goal: Goal, reported: dict, variables: dict
    ) -> dict:
        back = arguments["back"]
        would = self._would(host, goal, variables)
        answers = read_answers(arguments["routers"], (), "__router", "servers")
        servers = answers.results[0]["servers"] if answers.results else {}
        situation = situation_of(host, reported, goal.plan, would, servers, back)
        if situation.lock:
            dead = is_dead(situation.lock.owner)
            situation = replace(situation, lock=replace(situation.lock, dead=dead))
        findings = []
        # On the way back there is no choice; where nothing serves yet, there may be no router.
        if situation.serving and not back:
            findings += cannot_drain(answers.unreachable, host)
            if arguments["routers"] and not answers.results and not findings:
                raise _unrouted(arguments["routers"][0])
        findings += self._weights(host, goal, variables)
        if findings:
            raise ApiaryError(*findings)
        units = {slot.unit for slot in (*situation.running, *situation.wanted)}
        before = reported.get("plan")
        return {
            "to": to_document(goal),
            "reported": reported,
            "servers": servers,
            "situation": to_document(situation),
            "owner": owner(),
            "compare": {
                unit: to_document(BACK if back else compare_answers(before, goal.plan, unit))
                for unit in sorted(units)
            },
            "smoke": to_document(knowledge("rollout.yml")["smoke"]),
        }

    def _weights(self, host: str, goal: Goal, variables: dict) -> list[Finding]:
        path = goal.plan["deployment"]["model"]["path"]
        stat = self._execute_remote_stat(
            f"{path}/config.json", all_vars=variables, follow=True, checksum=False
        )
        if stat["exists"]:
            return []

        return list(error("ROLLOUT-NO-WEIGHTS", host, f"{path} has no config.json").findings)


def _unrouted(answer: dict) -> AnsibleActionFail:
    """Return the first router's own refusal, where none knows the replicas."""
    shown = {name: answer[name] for name in ("findings",) if name in answer}
    return AnsibleActionFail(str(answer.get("msg", "no router answers")), result=shown)
