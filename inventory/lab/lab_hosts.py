#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory of the simulated lab: the hosts that tests/lab/lab.py has up, and how to reach them.

``APIARY_LAB`` names the lab (default: demo), ``APIARY_LAB_DIR`` the state root.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

GPU_HOSTS, ROUTERS = "gpu_hosts", "routers"
# There only where the lab has some: playbooks ask whether anybody watches.
OTHERS = ("monitoring", "storage")


def lab_directory() -> Path:
    """Return the directory where lab.py keeps this lab."""
    root = os.environ.get("APIARY_LAB_DIR")
    base = Path(root) if root else Path(__file__).resolve().parents[2] / ".lab"
    return base.resolve() / os.environ.get("APIARY_LAB", "demo")


def host_variables(lab: Path, host: dict[str, Any]) -> dict[str, Any]:
    """Return what Ansible needs to reach a host: its own key, its host key strictly checked."""
    options = [
        f"UserKnownHostsFile={lab / 'known_hosts'}",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
    ]
    variables = {
        "ansible_host": host["address"],
        "ansible_port": host["ssh_port"],
        "ansible_user": host["user"],
        "ansible_ssh_private_key_file": str(lab / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(f"-o{option}" for option in options),
        "lab_ports": host["ports"],
        "lab_root": str(lab.parent),
        "apiary_artifacts": str(lab / "artifacts"),
    }
    # Virtual machines (tests/vm) have no network of a lab.
    if "address_in_lab" in host:
        variables["apiary_address"] = host["address_in_lab"]
        # The machine itself, which asks replicas in tests (tests/lab/labkit/network.py).
        variables["lab_gateway"] = str(ip_network(f"{host['address_in_lab']}/22", strict=False)[1])
    if host.get("virtual_address"):
        variables["lab_virtual_address"] = host["virtual_address"]
    return variables


def inventory(lab: Path) -> dict[str, Any]:
    """Return the inventory in Ansible's JSON; it is empty while the lab is down."""
    state = lab / "hosts.json"
    hosts = json.loads(state.read_text())["hosts"] if state.exists() else {}
    if not hosts:
        print(f"The lab {lab.name} is not up: `make demo` starts it.", file=sys.stderr)
    variables = {name: host_variables(lab, host) for name, host in hosts.items()}
    grouped = {
        group: [name for name, host in hosts.items() if host.get("group", GPU_HOSTS) == group]
        for group in (GPU_HOSTS, ROUTERS, *OTHERS)
    }
    # A group of its own lets a lab's GPU hosts differ from the others by its group_vars.
    own = f"lab_{lab.name.replace('-', '_')}"
    return {
        GPU_HOSTS: {"hosts": grouped[GPU_HOSTS], "children": [own]},
        own: {"hosts": grouped[GPU_HOSTS]},
        ROUTERS: {"hosts": grouped[ROUTERS]},
        **{group: {"hosts": grouped[group]} for group in OTHERS if grouped[group]},
        "_meta": {"hostvars": variables},
    }


if __name__ == "__main__":
    json.dump(inventory(lab_directory()), sys.stdout, indent=2)
    print()
