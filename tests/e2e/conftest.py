# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts, as testinfra sees them after the site playbook has run."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import own_user

from support.host.lab import connected, lab_inventory

ROOT = Path(__file__).parents[2]


PLAY = """
- hosts: {host}
  gather_facts: false
  become: true
  roles:
    - role: apiary.instinct.replicas
"""


INVENTORY = lab_inventory()
HOSTS = {name: INVENTORY["_meta"]["hostvars"][name] for name in INVENTORY["gpu_hosts"]["hosts"]}


@pytest.fixture(scope="session", params=sorted(HOSTS), ids=str)
def name(request):
    return request.param


@pytest.fixture(scope="session")
def variables(name):
    return HOSTS[name]


@pytest.fixture(scope="session")
def host(variables):
    """The host as root; every command goes over one connection: a new one takes thrice as long."""
    with tempfile.TemporaryDirectory(prefix="apiary-ssh-") as directory:
        # Short: the path of a socket has at most 107 bytes.
        shared = f"-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={directory}/%C"
        yield connected(variables, shared)


@pytest.fixture(scope="session")
def plan(host):
    """The plan as it was applied: the role left it on the host."""
    (path,) = host.check_output("ls /etc/apiary/*/plan.json").split()
    return json.loads(host.file(path).content_string)


@pytest.fixture(scope="session")
def account(plan):
    """Who runs the engines."""
    return plan["deployment"]["user"] or own_user(plan["deployment"]["name"])


@pytest.fixture(scope="session")
def serve(name, host, plan, account, tmp_path_factory):
    """Run the role on the host with the plan it has, or another; returns the finished process."""
    directory = tmp_path_factory.mktemp("play")
    home = host.check_output(f"getent passwd {account}").split(":")[5]
    # Molecule's own inventory and callbacks are not the operator's.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}

    def serve(*arguments, given=plan, check=True, **more):
        (directory / "play.yml").write_text(PLAY.format(host=name))
        stays = {"replicas_plan": given, "replicas_home": home, "replicas_remove_stale": False}
        (directory / "vars.json").write_text(json.dumps(stays | more))
        done = subprocess.run(
            [
                *("ansible-playbook", "-i", "inventory/lab", directory / "play.yml"),
                *("-e", f"@{directory / 'vars.json'}", *arguments),
            ],
            cwd=ROOT,
            env={**clean, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    return serve


@pytest.fixture(scope="session")
def upload(host):
    """Put a text on the host, readable by all; it shows in no argument as what it is."""

    def upload(path, text):
        coded = base64.b64encode(text.encode()).decode()
        host.check_output(f"echo {coded} | base64 -d > {path} && chmod 0644 {path}")

    return upload
