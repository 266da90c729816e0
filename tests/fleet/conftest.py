# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Twelve bare hosts, and an operator with a ledger of them.

The tests follow one another: what is begun is killed, resumed among faults, resumed again, and
then changed by a release that does not start. They share the lab, so they run in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loss.fleet import ROOT, Fleet, kill_tree, start, stop

NAME = os.environ.get("APIARY_FLEET_LAB", "fleet")
HOSTS = int(os.environ.get("APIARY_FLEET_HOSTS", "12"))
UNIT = "apiary-fleet-0.service"
# A host that vanishes is noticed in seconds; an operator's own setting would take a minute.
ALIVE = (
    "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=2 -o ServerAliveCountMax=3"
)


@dataclass(frozen=True)
class Operator:
    """Somebody at the controller with artifacts of their own."""

    fleet: Fleet
    artifacts: Path
    sockets: Path
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        return self.fleet.named("gpu_hosts")

    def command(self, *words: str) -> list[str]:
        program = str(Path(sys.executable).with_name("apiary"))
        common = ["--artifacts", str(self.artifacts), "--json"]
        return [program, "rollout", *words, *common]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a rollout; a session of its own, as a terminal gives it."""
        process = subprocess.Popen(
            self.command(*words),
            cwd=ROOT,
            env={
                **os.environ,
                "APIARY_LAB": self.fleet.lab,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_SSH_ARGS": ALIVE,
                "ANSIBLE_TIMEOUT": "10",
                # No connection that somebody else opened with other settings, such as the lab.
                "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
                "ANSIBLE_FORKS": "12",
                "ANSIBLE_NOCOLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def rollout(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Roll out to the end; return exit code, the run's document, and what was said."""
        return self.end(self.begin(*words))

    def end(self, process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
        out, err = process.communicate(timeout=1800)
        try:
            return process.returncode, json.loads(out), err
        except ValueError:
            raise AssertionError(f"no document: {out}{err}") from None

    def shown(self) -> str:
        """Return what the last run tells a person."""
        command = [part for part in self.command("--status") if part != "--json"]
        environment = {**os.environ, "COLUMNS": "160", "TERM": "dumb"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def ledger(self, host: str) -> dict[str, Any]:
        """Return a host's ledger."""
        path = self.artifacts / "fleet/ledger" / f"{host}.json"
        read: dict[str, Any] = json.loads(path.read_text())
        return read

    def last(self, host: str) -> dict[str, Any]:
        """Return the last entry of a host's ledger."""
        entry: dict[str, Any] = self.ledger(host)["entries"][-1]
        return entry

    def plan_on(self, host: str) -> str:
        """Return the digest of the plan that a host has, nothing for none."""
        said = self.fleet.run(
            host, "sha256sum /etc/apiary/fleet/plan.json 2>/dev/null", check=False
        )
        return said.split(" ")[0]

    def serves(self, host: str) -> bool:
        """Say whether the host's replica answers."""
        asked = "curl --silent --fail --max-time 5 http://127.0.0.1:8000/health"
        answered = self.fleet.run(host, f"{asked} && echo yes || true")
        return answered.endswith("yes\n")

    def is_true(self, host: str) -> None:
        """Compare a host's ledger with what it really has: done is what serves that very plan."""
        entry = self.last(host)
        if entry["outcome"] == "done":
            assert self.serves(host), (host, entry)
            assert entry["plan"] == self.plan_on(host), (host, entry)
        elif entry["outcome"] != "begun":
            assert entry["reason"], (host, entry)
            assert entry["ended_at"], (host, entry)


@pytest.fixture(scope="session")
def fleet():
    """The lab, taken down afterwards unless it was up before."""
    found = Fleet(NAME)
    was_up = (found.directory / "hosts.json").exists()
    try:
        if not was_up:
            start(NAME, hosts=HOSTS, routers=0)
        yield found
    finally:
        if not was_up:
            stop(NAME)


@pytest.fixture(scope="session")
def operator(fleet, tmp_path_factory):
    # A socket's path may have 104 characters.
    with tempfile.TemporaryDirectory(prefix="cp-") as sockets:
        made = Operator(fleet, tmp_path_factory.mktemp("artifacts"), Path(sockets))
        yield made
        # A test that failed leaves its command at work.
        for process in made.begun:
            if process.poll() is None:
                kill_tree(process)
