# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End a play with a finding: a playbook gives the facts, the catalogue explains them."""

from __future__ import annotations

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.findings import error


class ActionModule(Deciding):
    """The refuse action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Fail with the finding."""
        raise error(arguments["code"], arguments["subject"], arguments["message"])
