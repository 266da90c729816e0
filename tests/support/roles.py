# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a role by the action that its tasks use, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.apiary.instinct.plugins.action import decide
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import read_role

HOST = "gpu-001"


def decide_role(
    role: str, variables: Mapping[str, Any], check_mode: bool = False, **arguments: Any
) -> dict[str, Any]:
    """Return what the action returns for a host with these variables, and nothing else."""
    task_vars = {
        "inventory_hostname": HOST,
        "ansible_python_interpreter": "/usr/bin/python3",
        "hostvars": {HOST: {}},
        "groups": {"gpu_hosts": [HOST]},
        **variables,
    }
    loader = DataLoader()
    templar = Templar(loader, {**read_role(role).defaults, **task_vars})
    task = MagicMock(args={"role": role, **arguments}, check_mode=check_mode, async_val=0)
    action = decide.ActionModule(task, MagicMock(), MagicMock(), loader, templar, None)
    result: dict[str, Any] = action.run(task_vars=task_vars)
    return result
