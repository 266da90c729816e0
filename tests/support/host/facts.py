# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab host as the tests of the role `rocm` use it: a shell, playbooks, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LAB = ROOT / "tests/lab"


class Rocm:
    """A host without anything of AMD's, and the role."""

    def __init__(self, lab_name, fingerprint):
        self.name, self.fingerprint = lab_name, fingerprint

    def shell(self, script):
        """Run a script as root; return what it printed."""
        command = [sys.executable, LAB / "lab.py", "ssh", "--name", self.name, "gpu-001"]
        words = f"sudo sh -c {shlex.quote(script)}"
        done = subprocess.run([*command, words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def play(self, playbook, *options, **variables):
        """Run a playbook; return its exit code and output."""
        told = {"lab_fingerprint": self.fingerprint, **variables}
        done = subprocess.run(
            ["ansible-playbook", "-i", "inventory/lab", playbook, *options, "-e", json.dumps(told)],
            cwd=ROOT,
            env={
                **os.environ,
                "APIARY_LAB": self.name,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "true",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def finding(self, **variables):
        """Run the role, which must refuse; return code and words of its one finding."""
        code, said = self.play("tests/faults/rocm.yml", **variables)
        found = dict(re.findall(r"error: ([A-Z]+-[A-Z-]+): (.*)", said))
        assert code != 0, said
        assert len(found) == 1, said
        assert "remedy: " in said
        return next(iter(found.items()))

    def converge(self, **variables):
        """Run the role, which must succeed."""
        code, said = self.play("tests/faults/rocm.yml", **variables)
        assert code == 0, said
        return said
