# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks, run as an operator runs them, on the one simulated host of this lab."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.host.lab import lab_variables

ROOT = Path(__file__).parents[2]
LAB = os.environ.get("APIARY_LAB", "demo")
HOST = "gpu-001"
# Molecule sets a configuration of its own, colours among it; an operator has the project's.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_NOCOLOR": "1",
}


@dataclass(frozen=True)
class Run:
    """What a playbook printed, and what it left for the host."""

    code: int
    output: str

    def recap(self, host=HOST):
        """Return the counts of Ansible's last lines for a host."""
        (line,) = [line for line in self.output.splitlines() if line.startswith(f"{host} ")]
        pairs = (word.split("=") for word in line.split(":", 1)[1].split())
        return {name: int(count) for name, count in pairs}


def applied(text):
    """Return whose resources a run with -v says that it changed: roles, or `replicas:NAME`."""
    found = re.findall(r"^    resources:\n((?:        .*\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^        ([\w:-]+?):$", "".join(found), re.MULTILINE))


def changed(text):
    """Return the names of the tasks that changed something, or would."""
    tasks = re.split(r"^TASK \[", text, flags=re.MULTILINE)[1:]
    return [task.partition("]")[0] for task in tasks if re.search("^changed: ", task, re.MULTILINE)]


@dataclass(frozen=True)
class Operator:
    """Somebody at the controller: ``artifacts`` is where the playbooks leave their documents."""

    artifacts: Path

    def play(self, name, *arguments):
        """Run one of the playbooks."""
        command = ["ansible-playbook", "-i", "inventory/lab", f"playbooks/{name}.yml", *arguments]
        done = subprocess.run(
            [*command, "-e", f"apiary_artifacts={self.artifacts}", "-e", "replicas_restart=true"],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def variables(self):
        """Return the variables by which the lab's inventory reaches the host."""
        return lab_variables()[HOST]

    def inventory(self, directory, **hosts):
        """Return an inventory of hosts that are the lab's under other names.

        An inventory with two names for one address would be refused, so theirs is another word.
        """
        for number, known in enumerate(hosts.values(), start=1):
            address = f"[{known['ansible_host']}]:{known['ansible_port']}"
            known["ansible_host"] = "localhost"
            known["apiary_address"] = f"192.0.2.{number}"
            known["ansible_ssh_common_args"] += f" -oHostKeyAlias={address}"
        path = directory / "others.json"
        path.write_text(json.dumps({"gpu_hosts": {"hosts": hosts}}))
        return str(path)

    def document(self, name, host=HOST):
        """Return a document that a playbook left for a host."""
        return json.loads((self.artifacts / host / name).read_text())

    def lab(self, *arguments):
        """Do something to the lab; return its output."""
        command = [sys.executable, "tests/lab/lab.py", arguments[0], "--name", LAB, *arguments[1:]]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, line):
        """Run a line of shell as root on the host."""
        return self.lab("ssh", HOST, f"sudo sh -c '{line}'")

    def failed(self):
        """Run the acceptance; return the codes of the checks that fail, with their remedies."""
        self.play("verify")
        judged = self.document("acceptance.json")
        checks = [one for one in judged["checks"] if one["state"] == "fail"]
        # The lab's kernel is the machine's, which the driver of the stubs does not build for.
        complaints = [one for one in judged["complaints"] if "KERNEL" not in one["code"]]
        return {one["code"]: one["remedy"] for one in [*checks, *complaints]}


@pytest.fixture
def operator(tmp_path):
    return Operator(tmp_path)
