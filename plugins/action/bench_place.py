# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what playbooks/bench.yml measures: the adapter to plugin_utils.bench.place."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.bench.place import Replicas, Router, place_of, refuse_serving, same_host
from ..plugin_utils.documents import to_document
from ..plugin_utils.fleet.names import address_of


def replicas_of(host, values, deployment):
    """Return a host's plan on the controller, that of the deployment where it has several."""
    root = Path(values.get("apiary_artifacts") or "artifacts", host)
    own = root / (deployment or "none") / "plan.json"
    path = (own if own.is_file() else root / "plan.json").resolve()
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        plan = {}
    return Replicas(host, str(path), plan, address_of(host, values))


def router_of(names, hostvars, answers):
    """Return the inventory's routers, with the ports that they have by their answers."""
    tls = hostvars[names[0]].get("router_tls_enabled", False) if names else False
    return Router(
        addresses=tuple(address_of(name, hostvars[name]) for name in names),
        ports={name: port for item in answers for name, port in (item.get("ports") or {}).items()},
        tls=str(tls).lower() in ("true", "yes", "1", "on"),
    )


class ActionModule(Deciding):
    """The bench_place action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return what is measured and from where; nothing is changed, and no engine is asked."""
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        hosts, deployment = arguments["hosts"], arguments["deployment"]
        routers = groups.get("routers") or [] if arguments["routers"] else []
        load_host = arguments["load_host"]
        load_hosts = [load_host] if load_host else groups.get("load_generators") or []
        place = place_of(
            [replicas_of(host, hostvars[host], deployment) for host in hosts],
            router_of(routers, hostvars, arguments["servers"]),
            load_hosts,
            deployment,
            arguments["urls"],
            arguments["metrics"],
        )
        if not arguments["restart_serving"]:
            answers = [item["servers"] for item in arguments["servers"] if "servers" in item]
            refuse_serving(place.name, arguments["runs"], answers)
        warn(same_host(place))
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        root = hostvars[hosts[0]].get("apiary_artifacts") or "artifacts"
        return {
            **to_document(place),
            "dest": arguments["dest"] or f"{root}/bench/{place.name}/{now}",
        }
