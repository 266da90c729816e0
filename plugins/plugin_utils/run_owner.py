# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who a run is, for the locks that it leaves on hosts and on the controller; for the adapters."""

from __future__ import annotations

import getpass
import os
import re
import socket

_OWNER = re.compile(r"(?P<where>.+@.+), process (?P<process>\d+)")


def owner() -> str:
    """Return who this run is; actions run in children of the run's own process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getppid()}"


def is_dead(holder: str) -> bool:
    """Return whether the owner of a lock was a run on this very controller that has ended."""
    theirs = _OWNER.fullmatch(holder)
    ours = _OWNER.fullmatch(owner())
    if not theirs or not ours or theirs["where"] != ours["where"]:
        return False
    return not os.path.exists(f"/proc/{theirs['process']}") and os.path.exists("/proc/self")
