# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See whether hosts may be taken out of service: the adapter to plugin_utils.rollout.room."""

from __future__ import annotations

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.documents import knowledge, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.rollout.room import room_for
from ..plugin_utils.rollout.routers import cannot_drain, read_answers


class ActionModule(Deciding):
    """The rollout_room action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return what a router says against it; fail where that is an error."""
        facts = knowledge("rollout.yml")
        share = arguments["max_unavailable"] or facts["max_unavailable"]["value"]
        answers = read_answers(arguments["routers"], (), "__room_router", "servers")
        host = task_vars["inventory_hostname"]
        findings = dict.fromkeys(cannot_drain(answers.unreachable, host))
        for answer in answers.results:
            findings |= dict.fromkeys(
                room_for(
                    answer["servers"],
                    arguments["hosts"],
                    str(share),
                    arguments["allow_outage"],
                )
            )
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            raise ApiaryError(*errors)
        warn(findings)
        return {
            "findings": to_document(tuple(findings)),
            "smoke": to_document(facts["smoke"]),
        }
