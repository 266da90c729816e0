# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One change of a deployment at a time on a host: a file with who, since when, and what is out."""

from __future__ import annotations

import json
import os
from typing import Any

from ..durable import write_durably

SCHEMA = "apiary.rollout-lock/v1"


def read_lock(path: str) -> dict[str, Any] | None:
    """Return the lock, or None where nobody holds it; one that can't be read is of nobody known.

    One that is ``torn`` a power cut left, of a run that may have drained anything.
    """
    unknown = {"owner": "unknown", "since": "unknown", "out": []}
    try:
        with open(path, encoding="utf-8") as stream:
            lock = json.load(stream)
    except FileNotFoundError:
        return None
    except OSError:
        return unknown
    except ValueError:
        lock = None
    return lock if isinstance(lock, dict) else {**unknown, "torn": True}


def wanted_lock(
    held: dict[str, Any] | None, owner: str, out: list[str], now: str, stopped: bool = False
) -> dict[str, Any]:
    """Return the lock as it is to be; who holds it already goes on from the same time."""
    same = held is not None and held.get("owner") == owner
    since = held["since"] if held is not None and same else now
    lock = {"schema": SCHEMA, "owner": owner, "since": since, "out": sorted(out)}
    return {**lock, "stopped": True} if stopped else lock


def take_lock(path: str, told: dict[str, Any], fresh: bool) -> bool:
    """Write the lock; ``fresh`` says nobody may hold it. Return whether it is ours now."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    try:
        write_durably(path, text, 0o600, exclusive=fresh)
    except FileExistsError:
        return False
    return True
