# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End a play with a finding: a playbook gives the facts, the catalogue explains them."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.findings import error


class ActionModule(ActionBase):
    """The refuse action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Fail with the finding."""
        super().run(tmp, task_vars)
        _validation, given = self.validate_argument_spec(
            {
                "code": {"type": "str", "required": True},
                "subject": {"type": "str", "required": True},
                "message": {"type": "str", "required": True},
            }
        )
        raise refused(error(given["code"], given["subject"], given["message"]))
