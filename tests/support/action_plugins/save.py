# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a result to a file of the controller: as copy, without its two modules."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Write `content` to `dest`, in check mode too."""

    def run(self, tmp=None, task_vars=None):
        Path(self._task.args["dest"]).write_text(self._task.args["content"], encoding="utf-8")
        return {"changed": True}
