# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run playbooks without paying for Ansible's start each time: one process imports it, and forks."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_playbook(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `ansible-playbook WORDS` with the project's configuration; return status and output."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    whole = {
        **clean,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        **environment,
    }
    # Ansible reads its own settings when it is imported.
    settings = {name: text for name, text in whole.items() if name.startswith("ANSIBLE_")}
    process = _server(tuple(sorted(settings.items())))
    with tempfile.TemporaryDirectory(prefix="apiary-playbook-") as scratch:
        output, problems = Path(scratch, "stdout"), Path(scratch, "stderr")
        request = {
            "argv": [str(word) for word in words],
            "cwd": str(cwd),
            "environment": whole,
            "stdout": str(output),
            "stderr": str(problems),
        }
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the process that runs playbooks has ended; its words are above"
        return subprocess.CompletedProcess(
            ["ansible-playbook", *request["argv"]],
            int(answer),
            output.read_text(encoding="utf-8"),
            problems.read_text(encoding="utf-8"),
        )


@cache
def _server(settings: tuple[tuple[str, str], ...]) -> subprocess.Popen[str]:
    others = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    process = subprocess.Popen(
        (sys.executable, Path(__file__).with_name("playbook_server.py")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**others, **dict(settings)},
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.stdin.close()
    process.wait()
    process.stdout.close()
