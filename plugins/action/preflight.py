# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Try from a host what a run will need there: the adapter to fleet.preflight."""

from __future__ import annotations

import json
from pathlib import Path

from ..plugin_utils.adapters import DISPLAY, Deciding, gathered
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import error, findings_of, stop_on_errors
from ..plugin_utils.fleet import preflight
from ..plugin_utils.fleet.fetches import fetches
from ..plugin_utils.fleet.given import pending
from ..plugin_utils.fleet.names import address_of


class ActionModule(Deciding):
    """The preflight action."""

    def decide(self, arguments, task_vars):
        """Return what was found of this host; with ``report`` show the fleet's, and stop."""
        host = task_vars["inventory_hostname"]
        if arguments["report"]:
            return self._report(host, task_vars)
        left = pending(host)
        if left is None and arguments["dest"]:
            return _list(host, arguments, fetches(arguments["resources"]))
        if left is None and host in task_vars["groups"].get("routers", ()):
            return self._from_router(host, task_vars)
        if left is None:
            raise error("FLEET-SURVEY", host, "was not surveyed in this run")
        everything = [each for resources in left.resources.values() for each in resources]
        changing, plans = preflight.due(left), preflight.plans_of(left)
        trials = preflight.trials(changing, everything)
        evidence = gathered(self, ["preflight"], task_vars, trials=trials)
        concerns = left.survey.concerns
        surveyed = [*left.survey.findings, *(one for item in concerns for one in item.findings)]
        found = preflight.in_table(surveyed)
        found += preflight.evaluate(host, evidence, changing, plans)
        if arguments["dest"]:
            _list(host, arguments, fetches([*everything, *arguments["resources"]], plans))
        return {"findings": to_document(found)}

    def _from_router(self, router: str, task_vars: dict) -> dict:
        """Try from a router the ports of all hosts that were surveyed in this run."""
        known, places = task_vars["hostvars"], {}
        for name in task_vars["groups"].get("gpu_hosts", ()):
            left = pending(name)
            if left is not None:
                places[name] = (address_of(name, known[name]), preflight.plans_of(left))
        targets = preflight.ways(places)
        trials = [{"kind": "tcp", "target": target} for target in targets]
        evidence = gathered(self, ["preflight"], task_vars, trials=trials)
        found = preflight.blocked(router, evidence, targets)
        return {"findings": to_document(tuple(found))}

    def _report(self, host: str, task_vars: dict) -> dict:
        known = task_vars["hostvars"]
        results = {name: known[name].get("__preflight") for name in task_vars["ansible_play_batch"]}
        found = {name: findings_of(item) for name, item in results.items() if item}
        if host == next(iter(found), None):
            text = "\n".join(preflight.lines(preflight.table(found)))
            DISPLAY.display(f"Preflight\n{text}", stderr=True)
        stop_on_errors(found.get(host, ()))
        return {}


def _list(host: str, arguments: dict, listed: tuple) -> dict:
    """Write what a host fetches."""
    text = json.dumps(to_document(listed))
    write_text(Path(arguments["dest"]) / f"{host}.json", text)
    return {"findings": []}
