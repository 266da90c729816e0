# SPDX-License-Identifier: GPL-3.0-or-later

"""When a start may begin: after longer and longer pauses where starts fail, and in its turn.

The starts are counted in the unit's runtime directory, which RuntimeDirectoryPreserve=restart keeps
over restarts, automatic and asked for. A stop forgets the count, so that an operator never waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable

from ....module_utils.finding import ApiaryError
from ....module_utils.kfd import read
from .context import Context
from .progress import RECORD, duration, has_read_weights


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


PASSED, COMING, ABSENT = "passed", "coming", "absent"


def wait_turn(context: Context) -> None:
    """Return when a replica before this one has read the weights, or none of them is about to."""
    limits = context.life["after_first"]
    began = time.monotonic()
    while context.spec.after:
        waited = time.monotonic() - began
        states = _states(context, waited)
        first = next((unit for unit in context.spec.after if states[unit] == COMING), None)
        if PASSED in states.values() or first is None:
            return
        if waited >= limits["limit_seconds"]:
            context.journal.say(f"{first} has not read the weights in {duration(waited)}: going on")
            return
        context.publish("waiting")
        context.notifier.status(f"waiting for {first} to read the weights, {duration(waited)}")
        context.pause(limits["poll_seconds"])


def _states(context: Context, waited: float) -> dict[str, str]:
    """Return each earlier unit's state by systemd's word, and by the phases that they publish."""
    properties = _systemd(context.spec.after)
    states = {}
    for unit in context.spec.after:
        phase = _phase(context, unit)
        if has_read_weights(context.life, phase):
            states[unit] = PASSED
        elif properties is None:
            settled = waited >= context.life["after_first"]["settle_seconds"]
            coming = phase != "stopping" if phase else not settled
            states[unit] = COMING if coming else ABSENT
        else:
            states[unit] = properties.get(unit, ABSENT)
    return states


def _phase(context: Context, unit: str) -> str:
    if context.phase_file is None:
        return ""
    # RUNTIME_DIRECTORY is our own; the others' stand beside it.
    return read(os.path.join(os.path.dirname(os.path.dirname(context.phase_file)), unit, "phase"))


def _systemd(units: tuple[str, ...]) -> dict[str, str] | None:
    """Return the state of units as systemctl tells it; None where nobody can be asked."""
    if shutil.which("systemctl") is None:
        return None
    option = "--property=Id,ActiveState,SubState,Job"
    try:
        done = subprocess.run(
            ["systemctl", "show", option, *units],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    states = {}
    for block in done.stdout.split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        active, sub = shown.get("ActiveState"), shown.get("SubState")
        if active in ("active", "reloading"):
            state = PASSED
        elif active == "activating":
            state = ABSENT if sub == "auto-restart" else COMING
        else:
            # A start that waits in the same transaction has a job and no process yet.
            queued = active in ("inactive", "failed") and shown.get("Job", "0") not in ("", "0")
            state = COMING if queued else ABSENT
        states[shown.get("Id", "")] = state
    return states
