# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep a host out with the reason written down, or let it in again; on the controller."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.documents import dumps, to_document
from ..plugin_utils.files import write_text
from ..plugin_utils.rollout.events import progress_of
from ..plugin_utils.rollout.progress import failure_of


class ActionModule(Deciding):
    """The quarantine action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Write or remove quarantine.json; changes nothing of the host itself."""
        host = task_vars["inventory_hostname"]
        path = Path(arguments["dest"]).absolute() / "quarantine.json"
        writes = not self._task.check_mode
        if arguments["state"] == "absent":
            if writes:
                path.unlink(missing_ok=True)
            return {}
        progress = progress_of(arguments["progress"], host)
        failure = progress.failure or failure_of(arguments["task"], arguments["result"])
        more = [to_document(progress.way_back)] if progress.way_back else []
        findings = [*failure.findings, *more]
        document = {
            "schema": "apiary.quarantine/v1",
            "host": host,
            "task": failure.task,
            "message": failure.message,
            "findings": findings,
        }
        if writes:
            write_text(path, dumps(document))
        if arguments["fail"]:
            raise AnsibleActionFail(failure.message, result={"findings": findings})
        messages = [failure.message, *(finding["message"] for finding in more)]
        return {"message": "\n".join(messages).splitlines()}
