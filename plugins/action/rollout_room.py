# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See whether hosts may be taken out of service: the adapter to plugin_utils.rollout.room."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import knowledge, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.rollout.room import room_for
from ..plugin_utils.rollout.routers import cannot_drain, read_answers

DISPLAY = Display()


class ActionModule(ActionBase):
    """The rollout_room action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return what a router says against it; fail where that is an error."""
        super().run(tmp, task_vars)
        facts = knowledge("rollout.yml")
        _validation, arguments = self.validate_argument_spec(
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "routers": {"type": "list", "elements": "dict", "required": True},
                "max_unavailable": {"type": "raw"},
                "allow_outage": {"type": "bool", "default": False},
            }
        )
        share = arguments["max_unavailable"] or facts["max_unavailable"]["value"]
        try:
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
        except ApiaryError as refusal:
            raise refused(refusal) from None
        for finding in findings:
            DISPLAY.warning(str(finding))
        return {
            "changed": False,
            "findings": to_document(tuple(findings)),
            "smoke": to_document(facts["smoke"]),
        }
