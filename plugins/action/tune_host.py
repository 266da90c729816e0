# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes to tune on a host: the adapter from Ansible to plugin_utils.tune.host."""

from __future__ import annotations

import json

from ..plugin_utils.adapters import Deciding, module_result, warn
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import error
from ..plugin_utils.fleet.given import given_evidence
from ..plugin_utils.run_owner import is_dead, owner
from ..plugin_utils.tune.host import TUNING, Lock, Seen, prepare
from ..plugin_utils.tune.scope import scope
from ..plugin_utils.tune.trial import numbered


def known_servers(answers: list[dict], deployment: str) -> dict[str, dict]:
    """Return the deployment's servers by host-number; one that any router has ready is ready."""
    known: dict[str, dict] = {}
    for answer in answers:
        for name, told in answer.items():
            backend, _slash, server = name.partition("/")
            if backend == deployment and known.get(server, {}).get("state") != "ready":
                known[server] = told
    return known


def seen_of(host: str, deployment: str, told: dict, answers: list[dict], routers: bool) -> Seen:
    """Return what is known of a host before anything is changed."""
    held = told.get("lock")
    lock = None
    if held:
        name = str(held.get("owner"))
        lock = Lock(
            name,
            is_dead(name.removeprefix(TUNING)),
            tuple(held.get("out") or ()),
            stopped=bool(held.get("stopped")),
        )
    return Seen(
        host=host,
        deployment=deployment,
        serving=tuple(told.get("serving") or ()),
        planned=bool(told.get("plan")),
        release=told.get("current"),
        lock=lock,
        servers=known_servers(answers, deployment) if routers else None,
        stopped=tuple(told.get("stopped") or ()),
    )


class ActionModule(Deciding):
    """The tune_host action."""

    def decide(self, arguments, task_vars):
        """Return what is tuned, and what is to be done before and after; refuse a busy host."""
        host = task_vars["inventory_hostname"]
        names = (arguments[name] for name in ("deployment", "workload", "load"))
        evidence, _text = given_evidence(arguments["evidence"])
        own = scope(host, arguments["plans"], evidence, *names)
        seen = self._seen(host, own.deployment["name"], arguments["routers"], task_vars)
        ready = prepare(seen, arguments["serving"], arguments["take_over"])
        warn(ready.findings)
        return {
            **to_document(own),
            "ready": to_document(ready),
            "drain": numbered(host, ready.drain),
            "out": numbered(host, ready.out),
            "owner": TUNING + owner(),
            "held_by": seen.lock.owner if seen.lock else None,
        }

    def _seen(self, host, deployment, routers, task_vars):
        """Return what is known of the host; raise where a router that may send to it is lost."""
        info = module_result(self, "rollout_info", {"deployment": deployment}, task_vars)
        lost = [one["item"] for one in routers if one.get("unreachable")]
        if lost and info["serving"]:
            raise error(
                "ROLLOUT-ROUTER-UNREACHABLE",
                ", ".join(lost),
                f"could not be reached; it may send requests to {host}; if it is dead and gets no"
                f" request, leave it out: -e '{json.dumps({'drain_skip': lost})}'",
            )
        answers = [one["servers"] for one in routers if "servers" in one]
        return seen_of(host, deployment, info, answers, bool(answers))
