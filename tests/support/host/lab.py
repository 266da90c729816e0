# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of the lab that APIARY_LAB names, as its inventory has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import testinfra

ROOT = Path(__file__).parents[3]


def lab_inventory() -> Any:
    """Return the lab's inventory as Ansible is given it: groups, and variables in _meta."""
    listed = subprocess.run(
        [sys.executable, ROOT / "inventory/lab/lab_hosts.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(listed.stdout)


def lab_variables() -> Any:
    """Return the variables of every host of the lab, by host."""
    return lab_inventory()["_meta"]["hostvars"]


def connected(variables: dict[str, Any], *options: str) -> Any:
    """Return the host of these variables as testinfra sees it over SSH, as root."""
    return testinfra.get_host(
        f"ssh://{variables['ansible_user']}@{variables['ansible_host']}:{variables['ansible_port']}",
        ssh_identity_file=variables["ansible_ssh_private_key_file"],
        ssh_extra_args=" ".join((variables["ansible_ssh_common_args"], *options)),
        sudo=True,
    )
