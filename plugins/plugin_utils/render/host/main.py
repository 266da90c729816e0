# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one replica on exactly the GPUs it was planned for, and tell how it does.

Installed on hosts as /usr/libexec/apiary/launch with the package beside it (render/unit.py):
standard library, Python 3.9. The main process of a Type=notify unit; the engine is its child.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from dataclasses import fields
from typing import Any

from ....module_utils.finding import ApiaryError
from . import backoff, preflight
from .context import Context, LaunchSpec, StoppedError, read_life, read_spec
from .supervise import Supervisor


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="launch", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="start the engine and stay with it")
    runner.add_argument("--spec", required=True, help="the replica's launch document")
    runner.add_argument("argv", nargs=argparse.REMAINDER, help="-- and the engine's command")
    checker = commands.add_parser("check", help="say what would refuse a start")
    checker.add_argument("--spec", required=True, help="the replica's launch document")
    checker.add_argument(
        "--outside",
        action="store_true",
        help="leave out what only the unit has: its devices, CPUs, port and free memory",
    )
    arguments = parser.parse_args(argv)
    life = read_life()
    try:
        context = Context(read_spec(arguments.spec), life, dict(os.environ))
    except ApiaryError as refusal:
        context = Context(_nobody(arguments.spec), life, os.environ)
        status = _refused(context, refusal)
        context.journal.close()
        return status
    context.listen()
    try:
        if arguments.command == "check":
            return check(context, arguments.outside)
        command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
        if not command:
            parser.error("no engine command given")
        return run(context, command)
    finally:
        context.journal.close()


def run(context: Context, command: list[str]) -> int:
    """Return the exit status of a replica's whole life."""
    try:
        with contextlib.suppress(StoppedError):
            Supervisor(context, command).run()
        # A restart that somebody asked for keeps the directory, too, and is no failed start.
        backoff.forget(context)
    except ApiaryError as refusal:
        return _refused(context, refusal)
    finally:
        # Nobody waits for one that is gone; the file outlives an automatic restart.
        context.publish("stopping")
    return 0


def check(context: Context, outside: bool) -> int:
    """Put every refusal into the journal, and return the exit status of the worst."""
    # Who asks wants an answer now.
    context.life["gpu"]["busy"]["wait_seconds"] = 0
    statuses = [0]
    for step in preflight.outside(context) if outside else preflight.inside(context):
        try:
            step(context)
        except ApiaryError as refusal:
            statuses.append(_refused(context, refusal))
        except StoppedError:
            return 0
    return max(statuses)


def _refused(context: Context, refusal: ApiaryError) -> int:
    context.report(refusal)
    entry = context.life["refusals"]["entries"].get(refusal.findings[0].code, {"kind": "transient"})
    return int(context.life["exit_statuses"][entry["kind"]])


def _nobody(path: str) -> LaunchSpec:
    """Return a spec to speak for a replica whose own cannot be read."""
    values: dict[str, Any] = {item.name: None for item in fields(LaunchSpec)}
    return LaunchSpec(**{**values, "unit": os.path.basename(path)})
