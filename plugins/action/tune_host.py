# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes to tune on a host: the adapter from Ansible to plugin_utils.tune.host."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.run_owner import is_dead, owner
from ..plugin_utils.tune.host import TUNING, Lock, Seen, prepare

DISPLAY = Display()


def known_servers(answers: list[dict], deployment: str) -> dict[str, dict]:
    """Return the deployment's servers by host-number; one that any router has ready is ready."""
    known: dict[str, dict] = {}
    for answer in answers:
        for name, told in answer.items():
            backend, _slash, server = name.partition("/")
            if backend == deployment and known.get(server, {}).get("state") != "ready":
                known[server] = told
    return known


def seen_of(host: str, deployment: str, told: dict, answers: list[dict], routers: bool) -> Seen:
    """Return what is known of a host before anything is changed."""
    held = told.get("lock")
    lock = None
    if held:
        name = str(held.get("owner"))
        lock = Lock(
            name,
            is_dead(name.removeprefix(TUNING)),
            tuple(held.get("out") or ()),
            stopped=bool(held.get("stopped")),
        )
    return Seen(
        host=host,
        deployment=deployment,
        serving=tuple(told.get("serving") or ()),
        planned=bool(told.get("plan")),
        release=told.get("current"),
        lock=lock,
        servers=known_servers(answers, deployment) if routers else None,
        stopped=tuple(told.get("stopped") or ()),
    )


class ActionModule(ActionBase):
    """The tune_host action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return what is to be done before and after; fail where the host may not be taken."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "deployment": {"type": "str", "required": True},
                "told": {"type": "dict", "required": True},
                "servers": {"type": "list", "elements": "dict", "default": []},
                "routers": {"type": "bool", "default": False},
                "serving": {"type": "bool", "default": False},
                "take_over": {"type": "bool", "default": False},
            }
        )
        host, told = task_vars["inventory_hostname"], arguments["told"]
        seen = seen_of(
            host, arguments["deployment"], told, arguments["servers"], arguments["routers"]
        )
        try:
            ready = prepare(seen, arguments["serving"], arguments["take_over"])
        except ApiaryError as refusal:
            raise refused(refusal) from None
        for finding in ready.findings:
            DISPLAY.warning(str(finding))
        return {
            "changed": False,
            "ready": to_document(ready),
            "owner": TUNING + owner(),
            "held_by": seen.lock.owner if seen.lock else None,
        }
