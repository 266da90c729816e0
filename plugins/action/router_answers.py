# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evaluate what routers answered: the adapter to plugin_utils.rollout.read."""

from __future__ import annotations

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.findings import ApiaryError, has_errors
from ..plugin_utils.rollout.read import (
    goes_on_without,
    not_drained,
    not_up,
    read_answers,
    still_drained,
    still_sends,
)

_ROUTER = "__drain_router"


class ActionModule(Deciding):
    """The router_answers action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return who answered and who did not; fail where that must not be."""
        host, required = task_vars["inventory_hostname"], arguments["required"]
        answers = read_answers(arguments["answers"], arguments["routers"], _ROUTER)
        findings = []
        if arguments["state"] == "drained":
            findings += not_drained(answers.results, host, arguments["timeout"])
        elif arguments["state"] == "up":
            forced = self._task.check_mode or arguments["forced"]
            findings += () if forced else not_up(answers.results, _ROUTER)
            findings += still_drained(answers.lost, host, "error" if required else "warning")
        elif required:
            findings += still_sends(answers.unreachable, arguments["replicas"])
        elif arguments["state"] == "drain":
            findings += goes_on_without(answers.lost)
        if has_errors(findings):
            raise ApiaryError(*findings)
        warn(findings)
        results = list(answers.results)
        return {
            "answered": list(answers.answered),
            "lost": list(answers.lost),
            "results": [*arguments["previous"].get("results", []), *results],
        }
