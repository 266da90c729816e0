# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated hosts of a benchmark, and inventories over them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


class Lab:
    """A lab by name: containers that are hosts, and how to reach them."""

    def __init__(self, name: str) -> None:
        self.name = name
        root = os.environ.get("APIARY_LAB_DIR")
        self.root = Path(root) if root else ROOT / ".lab"

    def up(self, hosts: int) -> None:
        """Have so many hosts with the double of vLLM; those that are there stay as they are."""
        self._demo("hosts", "--hosts", str(hosts))

    def down(self) -> None:
        subprocess.run(
            [sys.executable, "tests/lab/lab.py", "down", "--name", self.name], cwd=ROOT, check=True
        )

    def _demo(self, *arguments: str) -> None:
        command = [sys.executable, "tests/lab/demo.py", *arguments, "--name", self.name]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)

    @property
    def hosts(self) -> dict[str, Any]:
        """Return what the lab records of its GPU hosts."""
        path = self.root / self.name / "hosts.json"
        recorded = json.loads(path.read_text())["hosts"] if path.exists() else {}
        return {name: host for name, host in recorded.items() if host["group"] == "gpu_hosts"}

    def cgroups(self) -> list[Path]:
        """Return where the kernel counts each host's CPU time; needs control groups v1."""
        names = [host["container"] for host in self.hosts.values()]
        if not names:
            return []
        told = subprocess.run(
            ["docker", "inspect", "--format", "{{.Id}}", *names],
            capture_output=True,
            text=True,
            check=True,
        )
        found = [Path("/sys/fs/cgroup/cpuacct/docker") / one for one in told.stdout.split()]
        return found if all(one.is_dir() for one in found) else []

    def container(self, host: str, *command: str) -> None:
        """Do something to a host as a whole: `docker COMMAND… CONTAINER`."""
        name = self.hosts[host]["container"]
        subprocess.run(["docker", *command, name], check=True, stdout=subprocess.DEVNULL)

    def inventory(self, place: Path, names: list[str]) -> Path:
        """Write an inventory of any number of names over the lab's hosts, in turn.

        Every name is a host to Ansible: an address, a connection, evidence and documents of its
        own.
        """
        addresses = self._addresses(names)
        place.mkdir(parents=True, exist_ok=True)
        keys = self._keys()
        lines = [f"{addresses[name]} {keys[self._host(n)]}" for n, name in enumerate(names)]
        (place / "known_hosts").write_text("\n".join(lines) + "\n")
        return self._write(place, addresses, self.root)

    def replayed(self, place: Path, names: list[str], recorded: Path) -> Path:
        """Write an inventory of names that nobody has the addresses of."""
        first = IPv4Address("10.64.0.1")
        return self._write(place, {name: str(first + n) for n, name in enumerate(names)}, recorded)

    def _write(self, place: Path, addresses: dict[str, str], root: Path) -> Path:
        variables = {}
        for number, name in enumerate(addresses):
            variables[name] = {
                "ansible_host": addresses[name],
                "apiary_rack": f"rack-{number // 8 + 1:03d}",
            }
        shared = {
            "ansible_user": "ansible",
            "ansible_ssh_private_key_file": str(self.root / self.name / "id_ed25519"),
            "ansible_ssh_common_args": "-oStrictHostKeyChecking=yes -oIdentitiesOnly=yes "
            f"-oUserKnownHostsFile={place / 'known_hosts'}",
            "lab_root": str(root),
            "apiary_artifacts": str(place / "artifacts"),
        }
        place.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "inventory/lab/group_vars", place / "group_vars", dirs_exist_ok=True)
        text = yaml.safe_dump({"gpu_hosts": {"hosts": variables, "vars": shared}}, sort_keys=False)
        (place / "hosts.yml").write_text(text)
        return place / "hosts.yml"

    def _host(self, number: int) -> str:
        """Return the lab's host that stands behind a name, by the name's number."""
        hosts = list(self.hosts)
        return hosts[number % len(hosts)]

    def _addresses(self, names: list[str]) -> dict[str, str]:
        """Return an address of each name; hosts get further ones in the lab's network."""
        hosts = self.hosts
        taken = [IPv4Address(host["address_in_lab"]) for host in hosts.values()]
        found = {name: str(taken[n]) for n, name in enumerate(names[: len(taken)])}
        more: dict[str, list[str]] = {}
        for number, name in enumerate(names[len(taken) :], len(taken)):
            found[name] = str(max(taken) + 1 + number - len(taken))
            more.setdefault(self._host(number), []).append(found[name])
        for host, addresses in more.items():
            adding = "; ".join(f"ip address replace {one}/22 dev eth0" for one in addresses)
            container = hosts[host]["container"]
            subprocess.run(["docker", "exec", container, "sh", "-c", adding], check=True)
        return found

    def _keys(self) -> dict[str, str]:
        """Return each host's public key."""
        found = {}
        for line in (self.root / self.name / "known_hosts").read_text().splitlines():
            place, key = line.split(" ", 1)
            found[place] = key
        return {
            name: found[f"[{host['address']}]:{host['ssh_port']}"]
            for name, host in self.hosts.items()
        }
