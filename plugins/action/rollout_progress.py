# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take the state of a host's change from one event to the next: the adapter to rollout.events."""

from __future__ import annotations

import os
import socket

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.documents import to_document
from ..plugin_utils.rollout.events import EVENTS, Event, progress_of, server_of
from ..plugin_utils.rollout.progress import lost, note, outcome_word


class ActionModule(Deciding):
    """The rollout_progress action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return the host's progress after the event."""
        host, event = task_vars["inventory_hostname"], arguments.pop("event")
        before, names = arguments.pop("progress"), arguments.pop("hosts")
        artifacts, maintaining = arguments.pop("artifacts"), arguments.pop("maintaining")
        owner = f"{socket.gethostname()}:{os.path.realpath(artifacts)}"
        others = {
            name: progress_of(task_vars["hostvars"][name].get("__progress"), name) for name in names
        }
        if event == "lost":
            finding = lost(others, maintaining)
            return {"note": str(finding) if finding else ""}
        happened = Event(host=host, owner=owner, others=others, **arguments)
        after = EVENTS[event](progress_of(before, host), happened)
        return {
            **to_document(after),
            "late_servers": [server_of(host, unit) for unit in after.late],
            "word": outcome_word(after),
            "note": note(after, host),
        }
