# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of their own that ask ansible-core: its settings are read once a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def ask(
    program: Path,
    request: Mapping[str, Any],
    vault: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a reader with a request as JSON on its input; it answers with JSON on its output.

    ``vault`` are files with vault passwords, beside those that the environment names. Raises
    TimeoutExpired after ``timeout`` seconds; what a reader fails with is for the caller to tell.
    """
    given = {"ANSIBLE_NOCOLOR": "1", "PYTHONWARNINGS": "ignore", **(environment or {})}
    if vault:
        known = os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST")
        given["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join((*([known] if known else []), *vault))
    return subprocess.run(
        [sys.executable, "-P", str(program)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **given},
        check=False,
        timeout=timeout,
    )
