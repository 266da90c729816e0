# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of hosts that serve, event by event: the adapter from Ansible to plugin_utils.rollout.

The state of a host is what playbooks register: its progress, and what was inspected of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils.adapters import Deciding, gathered, module_result, warn
from ..plugin_utils.documents import from_document, knowledge, to_document
from ..plugin_utils.files import read_text, utc_now
from ..plugin_utils.findings import ApiaryError, Finding, error, has_errors, stop_on_errors
from ..plugin_utils.fleet.saved import host_directory, was_decided
from ..plugin_utils.host.resources import with_overrides
from ..plugin_utils.host.role_options import options_of, read_role
from ..plugin_utils.plan.types import Plan, plan_of
from ..plugin_utils.quality.battery import (
    Quality,
    battery,
    identity,
    quality_of,
    read_reference,
    request_of,
)
from ..plugin_utils.quality.evaluate import answers_of, have_siblings, judged
from ..plugin_utils.reach import with_reach
from ..plugin_utils.render.replicas import ENGINE_SCOPE, decide
from ..plugin_utils.rollout.batches import room_for
from ..plugin_utils.rollout.events import EVENTS, Event, deployment_of, progress_of, server_of
from ..plugin_utils.rollout.plan import BACK, compare_answers, plan_rollout, summary
from ..plugin_utils.rollout.progress import lost, note, outcome_word
from ..plugin_utils.rollout.read import (
    cannot_drain,
    must_learn,
    must_show_key,
    read_answers,
    servers_elsewhere,
    situation_of,
    slots_of,
)
from ..plugin_utils.rollout.steps import Goal, chosen_plan, goal_of_plan, goal_of_release
from ..plugin_utils.rollout.types import HostSteps, Settings, Situation
from ..plugin_utils.run_owner import controller, is_dead, owner, show_alive

# What playbooks register: of every event but those that only read, and of inspect.
PROGRESS = "__progress"
INSPECTED = "__inspected"
ANSWERS = "__judged"
_ROUTER = "__router"
# Events that read what a host reports of itself.
_REPORTED = ("inspect", "answered", "inspected", "changed")


class ActionModule(Deciding):
    """The rollout action."""

    def decide(self, arguments, task_vars):
        """Return the host's progress after an event, or what the event inspects or decides."""
        host = task_vars["inventory_hostname"]
        try:
            return self._decide(host, arguments["event"], arguments, task_vars)
        except (AttributeError, KeyError, TypeError, ValueError) as failure:
            if arguments["event"] not in _REPORTED:
                raise
            message = f"what it reports is no state of a deployment: {failure!r:.200}"
            raise error("ROLLOUT-PLAN", host, message) from failure

    def _decide(self, host: str, event: str, arguments: dict, task_vars: dict) -> dict:
        if event in EVENTS:
            return self._happened(host, event, arguments, task_vars)
        if event == "lost":
            finding = lost(_progress(arguments["hosts"], task_vars))
            return {"note": str(finding) if finding else ""}
        decides = {
            "inspect": self._inspect,
            "order": self._order,
            "room": self._room,
            "quality": self._quality,
        }
        return decides[event](host, arguments, task_vars)

    def _happened(self, host: str, event: str, arguments: dict, variables: dict) -> dict:
        inspected = variables.get(INSPECTED) or {}
        if event == "begin" and not self._task.check_mode:
            show_alive(arguments["artifacts"])
        happened = Event(
            host=host,
            owner=controller(arguments["artifacts"]) if event == "inspected" else "",
            others=_progress(arguments["hosts"], variables),
            lock=(inspected.get("situation") or {}).get("lock") or {},
            release=(inspected.get("to") or {}).get("release", ""),
            task=arguments["task"],
            result=arguments["result"],
            batch=arguments["batch"],
            failure_budget=arguments["failure_budget"] or 0,
            step=arguments["step"],
            results=arguments["results"],
            unreached=arguments["unreached"],
            due=arguments["due"],
            reboot=arguments["reboot"],
        )
        after = EVENTS[event](progress_of(variables.get(PROGRESS), host), happened)
        return {
            **to_document(after),
            "out_servers": _servers(host, after.out),
            # Also where nothing else is left of what was inspected.
            "out_deployment": next((deployment_of(unit) for unit in after.out), ""),
            "late_servers": _servers(host, after.late),
            "back_servers": [
                _servers(host, served.serving)
                for served in (after.maintenance.back if after.maintenance else ())
            ],
            "word": outcome_word(after),
            "note": note(after, host),
        }

    def _quality(self, host: str, arguments: dict, variables: dict) -> dict:
        """Return what replicas are sent, and what their answers say; fail where they are worse."""
        name, findings, smoke = arguments["quality"], (), _smoke(arguments)
        answers = _answers(host, variables)
        if name and arguments["results"]:
            reference = read_reference(read_text(name), name)
            plans = [plan_of(one, f"{host}: plan") for one in arguments["plans"]]
            measured = answers_of(host, plans, arguments["results"], utc_now())
            others = [one for one in variables["ansible_play_hosts_all"] if one != host]
            # Of one other host, the first with siblings: each more would take as long again.
            passed = (_answers(one, variables) for one in others)
            elsewhere = next((each for each in passed if have_siblings(each, measured)), {})
            # A step replaces one replica: those of the steps before it passed already.
            findings = judged(measured, reference, {**elsewhere, **answers})
            answers |= measured
        return {
            "findings": _allowed(findings),
            "smoke": smoke,
            "answers": {replica: to_document(each) for replica, each in answers.items()},
        }

    def _room(self, host: str, arguments: dict, _variables: dict) -> dict:
        """Return what a router says against taking hosts out; fail where that is an error."""
        answers = read_answers(arguments["results"], (), _ROUTER, "servers")
        share = str(_chosen(arguments, "max_unavailable"))
        allow = arguments["allow_outage"]
        findings = [
            *cannot_drain(answers.unreachable, host),
            *(
                finding
                for answer in answers.results
                for finding in room_for(answer["servers"], arguments["hosts"], share, allow)
            ),
        ]
        return {"findings": _allowed(tuple(dict.fromkeys(findings)))}

    def _order(self, _host: str, arguments: dict, variables: dict) -> dict:
        """Return the rollout over hosts that were inspected; fail with what forbids it."""
        documents = [variables["hostvars"][name][INSPECTED] for name in arguments["hosts"]]
        situations = [from_document(Situation, one["situation"], "situation") for one in documents]
        name = documents[0]["to"]["plan"]["deployment"]["name"]
        hosts = {one.host for one in situations}
        # Whatever a failed change left: the way back is the way out.
        back = arguments["back"]
        servers = {} if back else documents[0]["servers"]
        # By what it reports itself a host could have the others' share grow.
        situations = [
            replace(
                one,
                known=max(
                    sum(server.rpartition("-")[0] == f"{name}/{one.host}" for server in servers),
                    replicas_elsewhere(arguments["artifacts"], [one.host], name),
                    len(one.wanted),
                ),
            )
            for one in situations
        ]
        others = sorted(set(arguments["pool"]) - hosts)
        elsewhere, down = servers_elsewhere(servers, name, hosts) or (
            replicas_elsewhere(arguments["artifacts"], others, name),
            0,
        )
        settings = Settings(
            batches=tuple(map(str, _chosen(arguments, "batches"))),
            max_unavailable=str(_chosen(arguments, "max_unavailable")),
            failure_budget=_chosen(arguments, "failure_budget"),
            canary=tuple(arguments["canary"]),
            routers=bool(variables["groups"].get("routers")) and not back,
            elsewhere=elsewhere,
            down_elsewhere=down,
            allow_outage=back or arguments["allow_outage"],
            allow_unhealthy=back or arguments["allow_unhealthy"],
            take_over=back or arguments["take_over"],
        )
        rollout = plan_rollout(name, situations, settings)
        return {
            "rollout": to_document(rollout),
            "steps": {one.host: _steps(one) for one in rollout.hosts},
            "findings": _allowed(rollout.findings),
            "moved": must_learn(rollout, situations),
            "rekeyed": must_show_key(rollout, situations),
            "summary": list(summary(rollout)),
        }

    def _inspect(self, host: str, arguments: dict, variables: dict) -> dict:
        """Return what the host is to serve, its situation, and how its replicas must answer."""
        goal, reported, remark = self._goal(host, arguments, variables)
        back = arguments["back"]
        would = self._would(host, goal, variables)
        answers = read_answers(arguments["results"], (), _ROUTER, "servers")
        servers, *others = [result["servers"] for result in answers.results] or [{}]
        # A router that did not answer may still hold out what the others use.
        others += [{}] * (len(arguments["results"]) - len(answers.results))
        situation = situation_of(host, reported, goal.plan, would, servers, back, others)
        if situation.lock:
            dead = is_dead(situation.lock.owner, arguments["artifacts"])
            dead = dead or situation.lock.dead
            situation = replace(situation, lock=replace(situation.lock, dead=dead))
        findings = []
        # On the way back there is no choice; where nothing serves yet, there may be no router.
        if situation.serving and not back:
            findings += cannot_drain(answers.unreachable, host)
            if arguments["results"] and not answers.results and not findings:
                raise _unrouted(arguments["results"][0])
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
            # On the way back the replicas answer as they did: what failed is known.
            "smoke": _smoke({} if back else arguments),
            "note": remark,
        }

    def _goal(self, host: str, arguments: dict, variables: dict) -> tuple[Goal, dict, str]:
        """Return the goal, what the host runs, and what a person should know of the choice."""
        name = arguments["deployment"]
        if arguments["release"] is None:
            plans = [plan_of(one, f"{host}: plan") for one in arguments["plans"]]
            plan = chosen_plan(plans, name, host)
            goal = goal_of_plan(plan, self._resources(host, plan, variables), owner())
            request = {"deployment": plan.deployment.name}
            return goal, module_result(self, "rollout_info", request, variables), ""
        request = {"deployment": name, "release": arguments["release"]}
        reported, remark = module_result(self, "rollout_info", request, variables), ""
        if reported["release"] is None:
            remark = (
                f"{host} is back on {reported['current']} already; "
                f"name another release with rollback_to: {', '.join(reported['releases'])}"
            )
            request["release"] = "current"
            reported = module_result(self, "rollout_info", request, variables)
        goal = goal_of_release(reported["release"] or {}, name, host)
        recorded = _recorded(host, name, goal, arguments)
        return replace(goal, recorded=recorded), reported, remark

    def _resources(self, host: str, plan: Plan, variables: dict) -> list[dict]:
        """Return the resources of the role replicas, which a rolling change drains first."""
        options = options_of(read_role("replicas"), variables, self._templar, host)
        options = with_reach(host, options, variables["hostvars"], variables["groups"])
        evidence = None
        if plan.deployment.engine.runtime != "native":
            evidence = gathered(self, [ENGINE_SCOPE], variables)
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

    def _weights(self, host: str, goal: Goal, variables: dict) -> list[Finding]:
        path = goal.plan["deployment"]["model"]["path"]
        stat = self._execute_remote_stat(
            f"{path}/config.json", all_vars=variables, follow=True, checksum=False
        )
        if stat["exists"]:
            return []
        return list(error("ROLLOUT-NO-WEIGHTS", host, f"{path} has no config.json").findings)


def _smoke(arguments: dict) -> dict:
    """Return what module replica_smoke asks, with a battery where there is a quality gate."""
    smoke = to_document(knowledge("rollout.yml")["smoke"])
    name = arguments.get("quality")
    if not name:
        return smoke
    # Before anything is drained: one that says nothing would be found out too late.
    if read_reference(read_text(name), name).battery != identity():
        raise error("QUALITY-BATTERY", name, "is of the questions of another release of Apiary")
    return {**smoke, "battery": request_of("", battery(tools=True))}


def _answers(host: str, variables: dict) -> dict[str, Quality]:
    """Return the answers of a host's replicas that passed in this run."""
    found = (variables["hostvars"][host].get(ANSWERS) or {}).get("answers") or {}
    return {replica: quality_of(each, replica) for replica, each in found.items()}


def _progress(hosts: list[str], variables: dict) -> dict:
    """Return the progress of hosts by name."""
    return {name: progress_of(variables["hostvars"][name].get(PROGRESS), name) for name in hosts}


def _chosen(arguments: dict, name: str):
    """Return an operator's setting, or what holds without it."""
    value = arguments[name]
    return knowledge("rollout.yml")[name]["value"] if value in (None, [], "") else value


def _allowed(findings: tuple[Finding, ...]) -> list:
    """Return findings as documents; raise their errors, and show their warnings."""
    stop_on_errors(findings)
    warn(findings)
    return to_document(findings)


def replicas_elsewhere(artifacts: str, hosts: list[str], deployment: str) -> int:
    """Return how many replicas of a deployment the plans of other hosts have."""
    count = 0
    for host in hosts:
        path = Path(artifacts) / host / deployment / "plan.json"
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
            count += len(slots_of(plan, deployment, str(path)))
        except (OSError, ValueError, AttributeError, ApiaryError):
            continue
    return count


def _recorded(host: str, deployment: str, goal: Goal, arguments: dict) -> bool:
    """Return whether routers may follow a release's plan; raise ROLLOUT-UNRECORDED.

    The way back of a failed change goes on without: what routers follow stays as it is.
    """
    directory = host_directory(Path(arguments["artifacts"]), host)
    if was_decided(directory, deployment, goal.plan_text):
        return True
    accepted, back = arguments["accept_unrecorded"], arguments["back"]
    message = f"no run of this controller decided the plan of release {goal.release}"
    _allowed((Finding("ROLLOUT-UNRECORDED", host, message, accepted=accepted, minor=back),))
    return bool(accepted and not back)


def _servers(host: str, units: Sequence[str]) -> list[str]:
    return [server_of(host, unit) for unit in units]


def _steps(host: HostSteps) -> list[dict]:
    """Return a host's steps, with the names that routers have of what they drain and undrain."""
    return [
        {
            **to_document(step),
            "drain_servers": _servers(host.host, step.drain),
            "undrain_servers": _servers(host.host, step.undrain),
        }
        for step in host.steps
    ]


def _unrouted(answer: dict) -> AnsibleActionFail:
    """Return the first router's own refusal, where none knows the replicas."""
    shown = {name: answer[name] for name in ("findings",) if name in answer}
    return AnsibleActionFail(str(answer.get("msg", "no router answers")), result=shown)
