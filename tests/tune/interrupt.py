# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Begin a tuning as an operator would, and kill it as soon as one trial is recorded.

    interrupt.py STATE

It ends with status 0 when the run was killed in the middle.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SECONDS = 600


def trials(state: Path) -> int:
    """Return how many trials a state has."""
    with contextlib.suppress(OSError, ValueError):
        return len(json.loads(state.read_text(encoding="utf-8"))["trials"])
    return 0


def main() -> int:
    """Run the playbook until there is a trial, then kill all of it."""
    state = Path(sys.argv[1])
    command = ["ansible-playbook", "-i", "inventory/lab", "playbooks/tune.yml"]
    files = [part for name in ("deployment", "requested") for part in ("-e", f"@{HERE / name}.yml")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    with subprocess.Popen(
        [*command, *files],
        cwd=ROOT,
        env={**clean, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        deadline = time.monotonic() + SECONDS
        while running.poll() is None and time.monotonic() < deadline and not trials(state):
            time.sleep(0.1)
        ended = running.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    return 0 if ended is None and trials(state) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
