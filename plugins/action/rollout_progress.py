# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take the state of a host's change from one event to the next: the adapter to rollout.events."""

from __future__ import annotations

import os
import socket

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.rollout.events import EVENTS, Event, progress_of, server_of
from ..plugin_utils.rollout.progress import lost, note, outcome_word


class ActionModule(ActionBase):
    """The rollout_progress action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the host's progress after the event."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "event": {"type": "str", "required": True, "choices": [*EVENTS, "lost"]},
                "progress": {"type": "dict", "default": {}},
                "hosts": {"type": "list", "elements": "str", "default": []},
                "batch": {"type": "list", "elements": "str", "default": []},
                "failure_budget": {"type": "int", "default": 0},
                "out": {"type": "list", "elements": "str", "default": []},
                "step": {"type": "dict", "default": {}},
                "answers": {"type": "list", "elements": "dict", "default": []},
                "unreached": {"type": "list", "elements": "str", "default": []},
                "release": {"type": "str", "default": ""},
                "task": {"type": "str", "default": ""},
                "result": {"type": "dict", "default": {}},
                "served": {"type": "list", "elements": "dict", "default": []},
                "due": {"type": "list", "elements": "str", "default": []},
                "reboot": {"type": "bool", "default": False},
                "maintaining": {"type": "bool", "default": False},
                "artifacts": {"type": "path", "default": "artifacts"},
            }
        )
        host, event = task_vars["inventory_hostname"], arguments.pop("event")
        before, names = arguments.pop("progress"), arguments.pop("hosts")
        artifacts, maintaining = arguments.pop("artifacts"), arguments.pop("maintaining")
        owner = f"{socket.gethostname()}:{os.path.realpath(artifacts)}"
        try:
            others = {
                name: progress_of(task_vars["hostvars"][name].get("__progress"), name)
                for name in names
            }
            if event == "lost":
                finding = lost(others, maintaining)
                return {"changed": False, "note": str(finding) if finding else ""}
            happened = Event(host=host, owner=owner, others=others, **arguments)
            after = EVENTS[event](progress_of(before, host), happened)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        return {
            "changed": False,
            **to_document(after),
            "late_servers": [server_of(host, unit) for unit in after.late],
            "word": outcome_word(after),
            "note": note(after, host),
        }
