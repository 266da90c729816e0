# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record what hosts answer over SSH, or replay it: a double of the benchmark, and of no test.

Ansible gets a connection plugin `ssh` that is its own and ends with a call of `take_place`. With
FLEET_RECORD set, the answer to each call is kept in that directory, with the time it took. With
FLEET_REPLAY set, nothing is connected to: a call waits as long as the recorded one took and gives
its answer, so that a run shows the cost of the controller alone, without that of SSH.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Exec = Callable[..., tuple[int, bytes, bytes]]
# The module's full name, as AnsiballZ has it in the script that is piped to Python.
MODULE = re.compile(rb"module_fqn=['\"]([\w.]+)['\"]")
COLLECTED = re.compile(r"(\"collected_at\": \")[^\"]+(\")")


def key_of(command: str, data: bytes | None) -> str:
    """Return the file name of a call: the module's name, or a digest of the command."""
    found = MODULE.search(data or b"")
    if found:
        return found[1].decode().rpartition(".")[2]
    # Temporary directories, and the mark of sudo, differ from run to run.
    plain = re.sub(r"[a-z]{32}|ansible-tmp-[\d.-]+", "", command)
    return f"command-{hashlib.sha256(plain.encode()).hexdigest()[:12]}"


def recording(real: Exec, place: Path) -> Exec:
    """Return SSH's own call that keeps what was answered."""

    def exec_command(self: Any, cmd: str, in_data: bytes | None = None, sudoable: bool = True):
        started = time.monotonic()
        code, out, err = real(self, cmd, in_data=in_data, sudoable=sudoable)
        told = {"seconds": time.monotonic() - started, "command": cmd, "code": code}
        told |= {"out": out.decode(), "err": err.decode()}
        (place / f"{key_of(cmd, in_data)}.json").write_text(json.dumps(told))
        return code, out, err

    return exec_command


def replaying(place: Path) -> Exec:
    """Return a call that answers what was recorded, after as long."""

    def exec_command(self: Any, cmd: str, in_data: bytes | None = None, sudoable: bool = True):
        path = place / f"{key_of(cmd, in_data)}.json"
        if not path.exists():
            return 1, b"", f"{path.name} was not recorded: {cmd[:200]}".encode()
        told = json.loads(path.read_text())
        time.sleep(told["seconds"])  # as long as the recorded host took: that is what is replayed
        # A survey is as old as its evidence, and an old one is no answer.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        out = COLLECTED.sub(rf"\g<1>{now}\g<2>", told["out"])
        return told["code"], out.encode(), told["err"].encode()

    return exec_command


def take_place(connection: Any) -> None:
    """Have a class of connections record or replay, as the environment says."""
    if "FLEET_RECORD" in os.environ:
        place = Path(os.environ["FLEET_RECORD"])
        connection.exec_command = recording(connection.exec_command, place)
    elif "FLEET_REPLAY" in os.environ:
        connection.exec_command = replaying(Path(os.environ["FLEET_REPLAY"]))


def write_plugin(place: Path) -> dict[str, str]:
    """Write the connection plugin; return the environment in which Ansible uses it."""
    found = importlib.util.find_spec("ansible.plugins.connection.ssh")
    if found is None or found.origin is None:
        raise SystemExit("ansible-core is not installed for this Python")
    place.mkdir(parents=True, exist_ok=True)
    kit = str(Path(__file__).parents[1])
    (place / "ssh.py").write_text(
        Path(found.origin).read_text()
        + "\n\nimport sys\n"
        + f"sys.path.append({kit!r})\n"
        + "from fleetkit.replay import take_place\n"
        + "take_place(Connection)\n"
    )
    return {"ANSIBLE_CONNECTION_PLUGINS": str(place)}
