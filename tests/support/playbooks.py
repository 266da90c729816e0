# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run playbooks without paying for Ansible's start each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.programs import run_program

ROOT = Path(__file__).parents[2]


def run_playbook(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `ansible-playbook WORDS` with the project's configuration; return status and output."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    whole = {
        **clean,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_ACTION_PLUGINS": str(Path(__file__).with_name("action_plugins")),
        **environment,
    }
    return run_program("playbook", words, cwd=cwd, environment=whole)
