# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask ansible-core by a program of its own: its settings are read once a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

READER = "apiary.app.ansible_reader"


def ask_ansible(
    request: Mapping[str, Any], vault: Sequence[str] = (), timeout: float | None = None
) -> tuple[dict[str, Any], str]:
    """Return the answer of the reader, and what Ansible printed; `error` says why there is none.

    ``vault`` are files with vault passwords, beside those that the environment names. Raises
    TimeoutExpired after ``timeout`` seconds.
    """
    environment = {
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONWARNINGS": "ignore",
        # A source that nobody can read is half a fleet.
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    }
    if vault:
        named = os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST")
        environment["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join((*([named] if named else []), *vault))
    done = subprocess.run(
        [sys.executable, "-P", "-m", READER],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        check=False,
        timeout=timeout,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        last = " ".join(done.stderr.split()[-100:])
        answer = {"error": f"ansible-core failed with status {done.returncode}: {last}"}
    return answer, done.stderr
