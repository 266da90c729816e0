# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide the order of a change: the adapter from Ansible to plugin_utils.rollout."""

from __future__ import annotations

import json
from pathlib import Path

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.documents import from_document, knowledge, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.rollout.events import server_of
from ..plugin_utils.rollout.plan import plan_rollout, summary
from ..plugin_utils.rollout.read import slots_of
from ..plugin_utils.rollout.types import HostSteps, Rollout, Settings, Situation


def replicas_elsewhere(artifacts: str, hosts: list[str], deployment: str) -> int:
    """Return how many replicas of a deployment the plans of other hosts have."""
    count = 0
    for host in hosts:
        for path in (
            Path(artifacts) / host / "plan.json",
            Path(artifacts) / host / deployment / "plan.json",
        ):
            try:
                plan = json.loads(path.read_text(encoding="utf-8"))
                if plan["deployment"]["name"] == deployment:
                    count += len(slots_of(plan, str(path)))
                    break
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return count


def servers_elsewhere(servers: dict, deployment: str, hosts: set[str]) -> tuple[int, int] | None:
    """Return how many servers of other hosts a router knows, and how many of them get no requests.

    None where no router was asked.
    """
    there = [
        bool(told.get("up")) and told.get("state") == "ready"
        for name, told in servers.items()
        if name.partition("/")[0] == deployment
        and name.partition("/")[2].rpartition("-")[0] not in hosts
    ]
    return (len(there), there.count(False)) if servers else None


def routers_must_learn(rollout: Rollout, situations: list[Situation]) -> bool:
    """Return whether routers are to be configured anew: other replicas, ports or keys.

    What an interrupted run had not told them, nobody knows, so they are asked then, too.
    """
    steps = [step for one in rollout.hosts for step in one.steps]
    locked = {one.host for one in situations if one.lock is not None}
    return any(step.kind == "swap" or step.later for step in steps) or bool(
        locked & set(rollout.order)
    )


def _steps(host: HostSteps) -> list[dict]:
    """Return a host's steps, with the names that routers have of what they drain and undrain."""
    return [
        {
            **to_document(step),
            "drain_servers": [server_of(host.host, unit) for unit in step.drain],
            "undrain_servers": [server_of(host.host, unit) for unit in step.undrain],
        }
        for step in host.steps
    ]


class ActionModule(Deciding):
    """The rollout_steps action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return the rollout; fail with the findings that forbid it."""
        facts = knowledge("rollout.yml")

        def chosen(name):
            given = arguments[name]
            return facts[name]["value"] if given is None or given in ([], "") else given

        situations = [from_document(Situation, one, "situation") for one in arguments["situations"]]
        elsewhere = sorted(set(arguments["pool"]) - {one.host for one in situations})
        planned = replicas_elsewhere(
            arguments["artifacts"] or "artifacts", elsewhere, arguments["deployment"]
        )
        known, down = servers_elsewhere(
            arguments["servers"], arguments["deployment"], {one.host for one in situations}
        ) or (planned, 0)
        settings = Settings(
            batches=tuple(map(str, chosen("batches"))),
            max_unavailable=str(chosen("max_unavailable")),
            failure_budget=chosen("failure_budget"),
            canary=tuple(arguments["canary"]),
            elsewhere=known,
            down_elsewhere=down,
            routers=arguments["routers"],
            allow_outage=arguments["allow_outage"],
            allow_unhealthy=arguments["allow_unhealthy"],
            take_over=arguments["take_over"],
        )
        rollout = plan_rollout(arguments["deployment"], situations, settings)
        errors = [one for one in rollout.findings if one.severity == "error"]
        if errors:
            raise ApiaryError(*errors)
        warn(rollout.findings)
        return {
            "rollout": to_document(rollout),
            "steps": {one.host: _steps(one) for one in rollout.hosts},
            "findings": to_document(rollout.findings),
            "moved": routers_must_learn(rollout, situations),
            "summary": list(summary(rollout)),
        }
