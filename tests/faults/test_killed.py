# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Roles on a real systemd, killed between any two of their effects, are completed by the next run.

The night kills every role before each effect. What every kind of resource does is tried in full
by tests/unit/resources/test_killed.py in CI, without a host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.halves import WAYS
from support.killed import Machine, Role, points
from support.killed_cases import CASES, CLEAN

from .conftest import ROOT

NAME = "killed"


def lab(script, *argv):
    command = [sys.executable, str(ROOT / "tests/lab" / script), *argv, "--name", NAME]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def machine():
    """A host with the double of vLLM; it is taken down unless it was up before."""
    directory = ROOT / ".lab" / NAME
    if os.environ.get("APIARY_LAB_DIR"):
        directory = type(directory)(os.environ["APIARY_LAB_DIR"]) / NAME
    was_up = (directory / "hosts.json").exists()
    lab("demo.py", "hosts")
    hosts = json.loads((directory / "hosts.json").read_text(encoding="utf-8"))["hosts"]
    found = Machine(hosts["gpu-001"]["container"])
    found.bring()
    yield found
    found.close()
    if not was_up:
        lab("lab.py", "down")


@pytest.mark.night
@pytest.mark.parametrize("name", CASES)
def test_every_role_killed_before_each_of_its_effects(machine, name):
    """Converge a case once, then kill it before each of its effects."""
    machine.shell(CLEAN)
    role = Role(machine, CASES[name])
    role.prepare()
    changed, effects = role.converge()
    assert changed
    expected = role.state()
    assert not role.converge()[0]
    chosen = points(effects)
    for before, torn in chosen:
        role.survives(effects, before, torn, expected)
    # Where a package manager was killed in the middle, it had something to finish.
    assert bool(role.unfinished) is any(torn in WAYS for _before, torn in chosen)
    role.restore()
