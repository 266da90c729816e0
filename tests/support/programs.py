# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run our programs without paying for their start each time: a process imports one, and forks."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

SERVER = Path(__file__).with_name("program_server.py")


def run_program(
    name: str,
    words: Sequence[object] = (),
    *,
    cwd: Path | str,
    environment: Mapping[str, str],
    text: str = "",
    **streams: str,
) -> subprocess.CompletedProcess[str]:
    """Run `playbook`, `inventory`, `reader` or `apiary`; return what it printed.

    ``text`` is its standard input; ``stdout`` and ``stderr`` are paths to write to instead, as
    /dev/full.
    """
    # Ansible reads its own settings when it is imported.
    settings = {key: value for key, value in environment.items() if key.startswith("ANSIBLE_")}
    process = _server(name, tuple(sorted(settings.items())))
    with tempfile.TemporaryDirectory(prefix="apiary-program-") as scratch:
        paths = {key: streams.get(key, f"{scratch}/{key}") for key in ("stdout", "stderr")}
        Path(scratch, "stdin").write_text(text, encoding="utf-8")
        request = {
            "argv": [name, *map(str, words)],
            "cwd": str(cwd),
            "environment": dict(environment),
            "stdin": f"{scratch}/stdin",
            **paths,
        }
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"the process that runs {name} has ended; its words are above"
        output, problems = (
            "" if key in streams else Path(path).read_text(encoding="utf-8", errors="replace")
            for key, path in paths.items()
        )
        return subprocess.CompletedProcess(request["argv"], int(answer), output, problems)


@cache
def _server(name: str, settings: tuple[tuple[str, str], ...]) -> subprocess.Popen[str]:
    others = {key: text for key, text in os.environ.items() if not key.startswith("ANSIBLE_")}
    process = subprocess.Popen(
        (sys.executable, SERVER, name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",  # where no ansible.cfg lies
        env={**others, **dict(settings)},
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.stdin.close()
    process.wait()
    process.stdout.close()
