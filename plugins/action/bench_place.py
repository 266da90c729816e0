# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what playbooks/bench.yml measures: the adapter to plugin_utils.bench.place."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.adapters import refused
from ..plugin_utils.bench.place import Replicas, Router, place_of, refuse_serving, same_host
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError

DISPLAY = Display()


def address_of(name, values):
    """Return the address at which others reach a host."""
    return values.get("apiary_address") or values.get("ansible_host") or name


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


def router_of(names, serving, hostvars):
    """Return what the inventory says of its routers."""
    if not names:
        return Router()
    settings = hostvars[names[0]]
    deployments = []
    for host in serving:
        values = hostvars[host]
        deployments += values.get("apiary_deployments") or []
        deployments += [values["apiary_deployment"]] if values.get("apiary_deployment") else []
    return Router(
        addresses=tuple(address_of(name, hostvars[name]) for name in names),
        ports={name: int(port) for name, port in (settings.get("router_ports") or {}).items()},
        first_port=int(settings.get("router_first_port") or 8080),
        tls=str(settings.get("router_tls_enabled", False)).lower() in ("true", "yes", "1", "on"),
        deployments=tuple(one["name"] for one in deployments),
    )


class ActionModule(ActionBase):
    """The bench_place action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return what is measured and from where; nothing is changed, and no engine is asked."""
        super().run(tmp, task_vars)
        _validation, given = self.validate_argument_spec(
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "deployment": {"type": "str", "default": ""},
                "routers": {"type": "bool", "default": True},
                "servers": {"type": "list", "elements": "dict", "default": []},
                "load_host": {"type": "str"},
                "urls": {"type": "list", "elements": "str", "default": []},
                "metrics": {"type": "list", "elements": "str", "default": []},
                "dest": {"type": "path"},
                "runs": {"type": "int", "default": 1},
                "restart_serving": {"type": "bool", "default": False},
            }
        )
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        hosts, deployment = given["hosts"], given["deployment"]
        routers = groups.get("routers") or [] if given["routers"] else []
        load_hosts = [given["load_host"]] if given["load_host"] else groups.get("load_generators")
        try:
            place = place_of(
                [replicas_of(host, hostvars[host], deployment) for host in hosts],
                router_of(routers, groups.get("gpu_hosts") or [], hostvars),
                load_hosts or [],
                deployment,
                given["urls"],
                given["metrics"],
            )
            if not given["restart_serving"]:
                answers = [one["servers"] for one in given["servers"] if "servers" in one]
                refuse_serving(place.name, given["runs"], answers)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        for finding in same_host(place):
            DISPLAY.warning(str(finding))
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        root = hostvars[hosts[0]].get("apiary_artifacts") or "artifacts"
        return {
            "changed": False,
            **to_document(place),
            "dest": given["dest"] or f"{root}/bench/{place.name}/{now}",
        }
