# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what a router runs, on the controller: the adapter from Ansible to plugin_utils.router."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused, warn
from ..plugin_utils.documents import from_document, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.saved import plan_of, quarantined, saved_plans
from ..plugin_utils.render.haproxy import render_router
from ..plugin_utils.render.keepalived import VirtualAddress, render_keepalived
from ..plugin_utils.render.router_host import PROGRAM, render_router_host
from ..plugin_utils.router.fleet import MissingHost, decide_router
from ..plugin_utils.router.pools import PlannedHost
from ..plugin_utils.router.types import Router, RouterSettings

# What everybody on the host may read; other files say who may ask.
OPEN = "0644"


class ActionModule(ActionBase):
    """The router_plan action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the router, and its files by whether others may see them."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "plans": {
                    "type": "list",
                    "elements": "dict",
                    "required": True,
                    "options": {
                        "host": {"type": "str", "required": True},
                        "address": {"type": "str", "required": True},
                        "plan": {"type": "dict"},
                        "artifacts": {"type": "path"},
                    },
                },
                "settings": {"type": "dict", "default": {}},
                "virtual": {"type": "dict"},
                "before": {"type": "dict"},
                "engine_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
                "python": {"type": "path", "default": "/usr/bin/python3"},
            }
        )
        host = task_vars["inventory_hostname"]
        try:
            return self._decide(host, arguments)
        except ApiaryError as refusal:
            raise refused(refusal) from None

    def _decide(self, host, arguments):
        settings = from_document(RouterSettings, arguments["settings"], f"{host}: the settings")
        plans, missing = [], []
        for one in arguments["plans"]:
            found, reason = self._plans(one)
            plans += [PlannedHost(one["host"], one["address"], plan) for plan in found]
            if reason:
                missing.append(MissingHost(one["host"], reason))
        before = None
        if arguments["before"]:
            # Release 0.1.0 had more options of traces; nothing compares them.
            former = {**arguments["before"]["settings"], "tracing": None}
            document = {**arguments["before"], "settings": former}
            before = from_document(Router, document, f"{host}: the router that runs")
        if self._task.check_mode and before is None and not plans:
            # On a fresh fleet check mode has saved no plan.
            told = f"{host}: no host has a plan yet, so that there is nothing to route to"
            return {"changed": False, "skipped": True, "msg": told}
        keyed = frozenset(arguments["engine_keys"])
        router = decide_router(settings, plans, missing, before, keyed)
        files = [*render_router_host(router, arguments["python"]), *render_router(router)]
        virtual = []
        if arguments["virtual"]:
            told = arguments["virtual"]
            peers = [{key: one[key] for key in ("host", "address")} for one in told["peers"]]
            asked = from_document(
                VirtualAddress, {**told, "peers": peers}, f"{host}: the virtual address"
            )
            virtual = [render_keepalived(asked, host, arguments["python"], PROGRAM)]
        warn(router.findings)
        return {
            "changed": False,
            "pools": {
                pool.deployment: {
                    "port": pool.port,
                    "servers": {one.name: f"{one.address}:{one.port}" for one in pool.servers},
                }
                for pool in router.pools
            },
            "files": [self._file(one) for one in files if one.mode == OPEN],
            "secrets": [self._file(one) for one in files if one.mode != OPEN],
            "virtual_files": [self._file(one) for one in virtual],
            "findings": to_document(router.findings),
        }

    @staticmethod
    def _file(one):
        return {"path": one.path, "mode": one.mode, "content": one.content}

    def _plans(self, one):
        """Return a host's plans, and why they do not count or are not there."""
        if one["plan"]:
            return [plan_of(one["plan"], one["host"])], None
        directory = Path(one["artifacts"] or "artifacts").absolute()
        if quarantined(directory):
            return [], "is quarantined"
        found = saved_plans(directory)
        return found, None if found else f"has no plan below {directory}"
