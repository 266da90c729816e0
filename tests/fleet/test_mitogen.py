# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mitogen's strategy, where it is installed: a survey finds the same as over plain SSH.

It is no dependency (docs/decisions/0016-mitogen.md): MITOGEN names where it was unpacked to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

PLACE = Path(os.environ.get("MITOGEN", "/nowhere"))
STRATEGIES = PLACE / "ansible_mitogen/plugins/strategy"
HOST = "gpu-006"


def surveyed(fleet, artifacts, **environment):
    """Return what a survey of the host finds, but for its time."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", "inventory/lab", "playbooks/survey.yml", "--limit", HOST]
    done = subprocess.run(
        [
            *command,
            "-e",
            f"@{ROOT}/tests/fleet/variables.yml",
            "-e",
            f"apiary_artifacts={artifacts}",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "APIARY_LAB": fleet.lab,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    survey = json.loads((artifacts / HOST / "survey.json").read_text())
    del survey["collected_at"]
    return survey


@pytest.mark.skipif(not STRATEGIES.is_dir(), reason="MITOGEN names no directory of Mitogen")
def test_a_survey_is_the_same(fleet, tmp_path):
    plain = surveyed(fleet, tmp_path / "plain")
    mitogen = surveyed(
        fleet,
        tmp_path / "mitogen",
        ANSIBLE_STRATEGY="mitogen_linear",
        ANSIBLE_STRATEGY_PLUGINS=str(STRATEGIES),
        PYTHONPATH=str(PLACE),
    )
    assert mitogen == plain
    assert plain["reached"]
