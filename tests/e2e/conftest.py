# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts, as testinfra sees them after the site playbook has run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import testinfra

ROOT = Path(__file__).parents[2]


def lab_hosts():
    """Every host variable of the lab inventory, by host."""
    listed = subprocess.run(
        [sys.executable, ROOT / "inventory/lab/lab_hosts.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(listed.stdout)["_meta"]["hostvars"]


HOSTS = lab_hosts()


@pytest.fixture(scope="session", params=sorted(HOSTS), ids=str)
def variables(request):
    return HOSTS[request.param]


@pytest.fixture(scope="session")
def host(variables):
    return testinfra.get_host(
        f"ssh://{variables['ansible_user']}@{variables['ansible_host']}:{variables['ansible_port']}",
        ssh_identity_file=variables["ansible_ssh_private_key_file"],
        ssh_extra_args=variables["ansible_ssh_common_args"],
        sudo=True,
    )


@pytest.fixture(scope="session")
def plan(host):
    """The plan as it was applied: the role left it on the host."""
    (path,) = host.check_output("ls /etc/apiary/*/plan.json").split()
    return json.loads(host.file(path).content_string)
