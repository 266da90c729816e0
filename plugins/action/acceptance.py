# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a host on the controller: the adapter from Ansible to plugin_utils.acceptance."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.accept import accept
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError


class ActionModule(ActionBase):
    """The acceptance action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the acceptance of one host; save it to ``dest`` unless in check mode."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "evidence": {"type": "dict", "required": True},
                "plans": {"type": "dict", "default": {}},
                "gpus": {"type": "int"},
                "strict": {"type": "bool", "default": False},
                "dest": {"type": "path"},
            }
        )
        # The host is named as the inventory names it: that is the name its operator knows.
        told = {**arguments["evidence"], "host": task_vars["inventory_hostname"]}
        try:
            judged = accept(told, arguments["plans"], arguments["gpus"], arguments["strict"])
            if arguments["dest"] and not self._task.check_mode:
                directory = Path(arguments["dest"]).absolute()
                write_text(directory / "acceptance.json", dumps(judged))
        except ApiaryError as refusal:
            raise AnsibleActionFail(
                str(refusal), result={"findings": to_document(refusal.findings)}
            ) from None
        return {
            "changed": False,
            "acceptance": to_document(judged),
            "accepted": judged.accepted,
            "findings": to_document(judged.findings),
            "summary": list(judged.summary()),
        }
