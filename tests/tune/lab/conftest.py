# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts of two replicas of the double behind a router, to be measured and tuned.

The lab `measure` (or what APIARY_MEASURE_LAB names) is taken down afterwards unless it was up.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from loss.fleet import ROOT, Fleet, start, stop

NAME = os.environ.get("APIARY_MEASURE_LAB", "measure")
VARIABLES = ROOT / "tests/tune/deployment.yml"
# Molecule's own inventory and callbacks are not the operator's.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}


@dataclass(frozen=True)
class Said:
    """How a playbook ended and what it said."""

    code: int
    text: str

    def changed(self, host):
        """Return how many tasks changed a host."""
        (line,) = [one for one in self.text.splitlines() if one.startswith(f"{host} ")]
        return int(line.split("changed=")[1].split()[0])


@dataclass(frozen=True)
class Operator:
    """Somebody at the controller; ``variables`` is a copy of the deployment's file, his own."""

    fleet: Fleet
    variables: Path

    @property
    def artifacts(self):
        return self.fleet.directory / "artifacts"

    def command(self, name, *options):
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        argv = [program, "-i", "inventory/lab", f"playbooks/{name}.yml"]
        return [*argv, "-e", f"@{self.variables}", *options]

    @property
    def environment(self):
        own = {"APIARY_LAB": self.fleet.lab, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        # The playbooks call `apiary report`.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**CLEAN, **own, "ANSIBLE_NOCOLOR": "1", "PATH": path}

    def play(self, name, *options):
        done = subprocess.run(
            self.command(name, *options),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout + done.stderr)

    def engine_runs(self):
        """Return which start of each replica this is, by systemd's own mark."""
        shown = {one: self.fleet.show(one, "InvocationID") for one in self.fleet.replicas}
        return {one.name: told["InvocationID"] for one, told in shown.items()}

    def active(self, host):
        """Return the state of each replica's unit on a host."""
        units = [one.unit for one in self.fleet.replicas if one.host == host]
        return self.fleet.run(host, f"systemctl is-active {' '.join(units)}", check=False).split()


@pytest.fixture(scope="session")
def operator(tmp_path_factory):
    variables = tmp_path_factory.mktemp("variables") / "deployment.yml"
    # Slow enough that a busy machine does not show: both hosts are to measure alike.
    variables.write_text(VARIABLES.read_text().replace('"0.1"', '"0.3"'))
    fleet = Fleet(NAME, (f"@{variables}",))
    was_up = (fleet.directory / "hosts.json").exists()
    try:
        start(NAME, hosts=2, routers=1)
        fleet.playbook("site", "--tags", "replicas,router", "-e", "replicas_restart=true")
        fleet.await_whole()
        yield Operator(fleet, variables)
    finally:
        if not was_up:
            stop(NAME)
