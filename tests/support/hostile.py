# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet on its controller, one host of which answers what it likes."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from ansible.errors import AnsibleActionFail
from ansible_collections.apiary.instinct.plugins.action import plan as plan_action
from ansible_collections.apiary.instinct.plugins.action import rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    save_documents,
    saved_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
    decide,
    render_systemd,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.fleet import decide_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import PlannedHost
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import RouterSettings

from support.demo import demo_plan

HOSTILE, OTHERS = "gpu-001", ("gpu-002", "gpu-003", "gpu-004")
NAME = "qwen3-235b"
OWN_SERVER = re.compile(rf"{HOSTILE}-[0-9]{{1,2}}", re.ASCII)
# Connection, play context, loader and templar: made once, as they cost more than what is tested.
ANSIBLE = (MagicMock(), MagicMock(), MagicMock(), MagicMock())
OPTIONS = {"replicas_home": "/var/lib/apiary", "replicas_remove_stale": True}
NOW, BEFORE = "20260722T101500Z-0f3a9c21", "20260721T101500Z-1e2d3c4b"


@cache
def plan_of_host(host, **changes):
    return dataclasses.replace(demo_plan(), host=host, **changes)


@cache
def files_of(plan_host):
    return to_document(render_systemd(plan_of_host(plan_host)))


def text_of(files):
    return next(item["content"] for item in files if item["path"].endswith("/plan.json"))


def release(host=HOSTILE, id_=BEFORE, **changes):
    """A release as rollout_info returns it, whose plan this controller decided."""
    return {**json.loads(_release(host)), "id": id_, **changes}


@cache
def _release(host):
    resources = decide(plan_of_host(host), OPTIONS, None).resources
    units = next(item for item in resources if item["kind"] == "release")["units"]
    return json.dumps({"deployment": NAME, "files": files_of(host), "units": units})


def with_plan(change):
    """A release whose plan is changed by a function."""
    changed = release()
    item = next(each for each in changed["files"] if each["path"].endswith("/plan.json"))
    document = json.loads(item["content"])
    replaced = change(document)
    item["content"] = json.dumps(document if replaced is None else replaced)
    return changed


def answer(**changes):
    """What rollout_info returns of an honest host, but for some of it."""
    return {**json.loads(_answer()), **changes}


@cache
def _answer():
    plan = to_document(plan_of_host(HOSTILE))
    return json.dumps(
        {
            "plan": plan,
            "serving": [replica["unit"] for replica in plan["replicas"]],
            "stopped": [],
            "lock": None,
            "releases": [BEFORE, NOW],
            "current": NOW,
            "previous": BEFORE,
            "release": release(),
        }
    )


class Fleet:
    """Hosts with plans that their controller decided, and a router of all of them."""

    def __init__(self, artifacts: Path) -> None:
        self.artifacts, self._routers = artifacts, {}
        for host in (HOSTILE, *OTHERS):
            text = text_of(files_of(host))
            save_documents(artifacts / host, {"plan.json": text, f"{NAME}/plan.json": text})
        self.before = self.state()

    def state(self):
        """Everything that is others' own: files, servers with all they have, pools."""
        files = {
            str(path.relative_to(self.artifacts.parent)): hashlib.sha256(path.read_bytes()).digest()
            for path in self.artifacts.parent.rglob("*")
            if path.is_file()
        }
        mine = (
            f"artifacts/{HOSTILE}/",
            f"artifacts/fleet/ledger/{HOSTILE}.json",
            "artifacts/fleet/controller",
        )
        router = self.router()
        return {
            "files": {name: one for name, one in files.items() if not name.startswith(mine)},
            "servers": {
                (pool.deployment, server.name): server
                for pool in router.pools
                for server in pool.servers
                if server.host != HOSTILE
            },
            "weights": {
                (pool.deployment, server.name): server.weight
                for pool in router.pools
                for server in pool.servers
            },
            "pools": {pool.deployment: (pool.port, pool.model) for pool in router.pools},
        }

    def router(self):
        """Return what a router is decided from all plans that count."""
        content = tuple(
            path.read_bytes() for path in sorted(self.artifacts.rglob("*.json")) if path.is_file()
        )
        if content not in self._routers:
            planned = [
                PlannedHost(host, f"10.0.0.{number}", plan)
                for number, host in enumerate((HOSTILE, *OTHERS))
                for plan in saved_plans(self.artifacts / host)[0]
            ]
            self._routers[content] = decide_router(RouterSettings(), planned)
        return self._routers[content]

    def servers(self):
        """What a router tells of its servers."""
        return {
            f"{NAME}/{server.name}": {"state": "ready", "up": True}
            for server in self.router().pools[0].servers
        }

    def run(self, plugin, answers, registered=None, **arguments):
        """Run an action for the host, whose modules answer as they are given."""
        task = SimpleNamespace(
            args=arguments, check_mode=False, async_val=0, diff=False, action="", _role=None
        )
        action = plugin.ActionModule(task, *ANSIBLE, None)

        def execute(module_name, **_more):
            return copy.deepcopy(answers[module_name.rpartition(".")[2]])

        action._execute_module = execute
        action._execute_remote_stat = lambda *_path, **_more: {"exists": True}
        own = {
            "inventory_hostname": HOSTILE,
            "hostvars": {HOSTILE: registered or {}},
            "groups": {"routers": ["router-1"], "all": [HOSTILE, *OTHERS]},
        }
        with patch.object(rollout, "show_alive"):  # a process that outlives the test
            return action.run(task_vars={**own, **(registered or {})})

    def change(self, reported, back=False, converge=None, accept=False):
        """Go through a rollback, or the way back of a failed rollout, as its playbook does.

        Returns the servers that routers were to be asked for, and why it ended early.
        """
        named = []
        answers = {
            "rollout_info": reported,
            "converge": converge or {"resources": [self._converged()]},
        }
        common = {"artifacts": str(self.artifacts)}
        routed = [{"__router": "router-1", "servers": self.servers()}]
        try:
            inspected = self.run(
                rollout,
                answers,
                event="inspect",
                deployment=NAME,
                release="current" if back else "rollback",
                back=back,
                results=routed,
                accept_unrecorded=accept,
                **common,
            )
            registered = {"__inspected": inspected, "__progress": {}}
            order = self.run(
                rollout,
                {},
                registered,
                event="order",
                hosts=[HOSTILE],
                back=back,
                pool=[HOSTILE, *OTHERS],
                allow_outage=True,
                allow_unhealthy=True,
                take_over=True,
                **common,
            )
            registered["__progress"] = self.run(rollout, {}, registered, event="begin", **common)
            for step in order["steps"].get(HOSTILE, ()):
                named += [*step["drain_servers"], *step["undrain_servers"]]
                for event in ("draining", "stepped"):
                    told = self.run(rollout, {}, registered, event=event, step=step, **common)
                    registered["__progress"] = told
                    named += told["late_servers"]
            if inspected["to"]["recorded"]:
                dest = str(self.artifacts / HOSTILE)
                text = inspected["to"]["plan_text"]
                self.run(plan_action, {}, registered, serves=text, dest=dest)
        except AnsibleActionFail as refusal:
            return named, str(refusal)
        return named, ""

    def maintain(self, reported):
        """Go through what a maintenance makes of the answer."""
        named = []
        results = reported if isinstance(reported, list) else [reported]
        try:
            progress = self.run(
                rollout,
                {},
                {"__progress": {}},
                event="inspected",
                results=results,
                due=["rocm"],
                artifacts=str(self.artifacts),
            )
            for _time in ("before the start", "after it"):
                progress = self.run(
                    rollout, {}, {"__progress": progress}, event="changed", results=results
                )
            for servers in progress["back_servers"]:
                named += servers
        except AnsibleActionFail as refusal:
            return named, str(refusal)
        return named, ""

    @staticmethod
    def _converged():
        units = [replica.unit for replica in plan_of_host(HOSTILE).replicas]
        return {
            "resource": f"replicas {NAME}",
            "role": "replicas",
            "changed": True,
            "result": {"restarted": units, "started": [], "secrets": []},
        }

    def unharmed(self, named):
        """Assert that nothing but the host's own is named or changed."""
        foreign = [name for name in named if not OWN_SERVER.fullmatch(name)]
        assert foreign == [], foreign
        assert self.state() == self.before


def places(document, path=()):
    """Every place in a document, as the keys that lead to it."""
    yield path
    items = ()
    if isinstance(document, Mapping):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document[:3])
    for key, value in items:
        yield from places(value, (*path, key))


def replaced(document, path, value):
    """The document with another value at a place."""
    if not path:
        return value
    result = copy.deepcopy(document)
    target = result
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return result
