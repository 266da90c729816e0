# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change means for one host: the adapter from Ansible to plugin_utils.rollout."""

from __future__ import annotations

import getpass
import os
import re
import socket

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import knowledge, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.rollout.compare import BACK, compare_answers
from ..plugin_utils.rollout.read import situation_of

_OWNER = re.compile(r"(?P<where>.+@.+), process (?P<process>\d+)")


def owner() -> str:
    """Return who this run is; actions run in children of the run's own process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getppid()}"


def is_dead(holder: str) -> bool:
    """Say whether the owner of a lock was a run on this very controller that has ended."""
    found = _OWNER.fullmatch(holder)
    ours = _OWNER.fullmatch(owner())
    if not found or not ours or found["where"] != ours["where"]:
        return False
    return not os.path.exists(f"/proc/{found['process']}") and os.path.exists("/proc/self")


class ActionModule(ActionBase):
    """The rollout_situation action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the host's situation, and how its replicas are to be asked."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "told": {"type": "dict", "required": True},
                "wanted": {"type": "dict", "required": True},
                "would": {"type": "dict", "required": True},
                "servers": {"type": "dict", "default": {}},
                "back": {"type": "bool", "default": False},
            }
        )
        host = task_vars["inventory_hostname"]
        told, wanted = arguments["told"], arguments["wanted"]
        try:
            situation = situation_of(
                host, told, wanted, arguments["would"], arguments["servers"], arguments["back"]
            )
        except ApiaryError as refusal:
            raise refused(refusal) from None
        before = told.get("plan")
        units = {slot.unit for slot in (*situation.running, *situation.wanted)}
        return {
            "changed": False,
            "situation": to_document(situation),
            "lock_is_dead": bool(situation.lock and is_dead(situation.lock.owner)),
            "owner": owner(),
            "compare": {
                unit: to_document(
                    BACK if arguments["back"] else compare_answers(before, wanted, unit)
                )
                for unit in sorted(units)
            },
            "smoke": to_document(knowledge("rollout.yml")["smoke"]),
        }
