# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Longer and longer pauses between starts that fail, whatever systemd's version.

The starts are counted in the unit's runtime directory, which RuntimeDirectoryPreserve=restart keeps
over restarts, automatic and asked for. A stop forgets the count, so that an operator never waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable

from ....module_utils.finding import ApiaryError
from ....module_utils.kfd import read
from .context import Context
from .ending import RECORD
from .phases import duration


def pause_seconds(context: Context, failed: int) -> float:
    """Return what a start waits after so many failed ones, beside the unit's own RestartSec=."""
    limits = context.life["backoff"]
    if failed == 0:
        return 0.0
    first, most = float(limits["first_seconds"]), float(limits["most_seconds"])
    jitter = float(limits["jitter"])
    pause = min(first * 2.0 ** min(failed - 1, 30), most / (1 + jitter))
    return pause * (1 + jitter * _share(context.spec.unit, failed)) - first


def _share(unit: str, failed: int) -> float:
    """Return a number from 0 to 1 that differs between hosts, units and starts."""
    text = f"{os.uname().nodename} {unit} {failed}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def wait(context: Context, check: Callable[[Context], ApiaryError | None]) -> None:
    """Count this start, and wait for its time; raises then what a check before the pause returned.

    Not one after it: systemd has just tried the mount, and tries it again at the next start only.
    """
    path = _path(context)
    if path is None:
        return
    text = read(path)
    failed = int(text) if text.isdigit() else 0
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
        stream.write(f"{failed + 1}\n")
    seconds = pause_seconds(context, failed)
    if seconds > 0:
        refusal = check(context)
        told = [f": {one.code}: {one.message}" for one in refusal.findings] if refusal else []
        why = "".join(told) or f": {context.recorded(RECORD).get('message', 'no cause known')}"
        context.notifier.status(f"waiting {duration(seconds)} after {failed} failed starts{why}")
        context.pause(seconds)
        if refusal:
            raise refusal


def forget(context: Context) -> None:
    """Let the next start be the first again: this one was good."""
    path = _path(context)
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _path(context: Context) -> str | None:
    if context.phase_file is None:
        return None
    return os.path.join(os.path.dirname(context.phase_file), "starts")
