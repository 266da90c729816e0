# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a benchmark's load comes from: this machine, or one over SSH that needs only Python."""

from __future__ import annotations

import base64
import io
import json
import shlex
import subprocess
import time
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.level import inspection_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.session import Session
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

from apiary.host.ssh.config import target_of
from apiary.host.ssh.connect import Connector, run, unreachable, words
from apiary.host.ssh.probe import SshOptions

KEEPALIVE_SECONDS = 30
# Takes our programs from the first line of stdin and a request from the second; stdin stays open,
# for its end is the end of the connection.
BOOT = (
    "import base64,os,sys,tempfile\n"
    "with tempfile.TemporaryDirectory() as d:\n"
    " p=os.path.join(d,'apiary.zip')\n"
    " with open(p,'wb') as f: f.write(base64.b64decode(sys.stdin.readline()))\n"
    " sys.path.insert(0,p)\n"
    " from load import run\n"
    " run.main()\n"
)


class Here:
    """This machine as the load host."""

    name = "this machine"

    def __init__(self, secrets: dict[str, str]) -> None:
        self.secrets = secrets

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_why: object) -> None:
        """Nothing is open."""

    def execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one request; raise BENCH-HOST where it cannot be run at all."""
        try:
            return bench_run.run({**request, "secrets": self.secrets})
        except bench_run.BenchError as failure:
            raise _unable(self.name, str(failure)) from failure


@dataclass
class Remote:
    """A load host over SSH; one connection serves all levels, anew where it has broken."""

    name: str
    options: SshOptions
    secrets: dict[str, str]
    _stack: ExitStack = field(default_factory=ExitStack)
    _transport: paramiko.Transport | None = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_why: object) -> None:
        self._stack.close()

    def execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one request over there; raise PROBE-… or BENCH-HOST."""
        requested = json.dumps({**request, "secrets": self.secrets})
        command = f"{shlex.quote(self.options.python)} -c {shlex.quote(BOOT)}"
        sent = f"{programs()}\n{requested}\n".encode()
        try:
            # The end of the channel is that of its stdin, which ends all that it started.
            status, out, reported = run(
                self._connect(), self.options, command, sent, most=bench_run.MOST_UNPACKED
            )
        except (paramiko.SSHException, OSError, EOFError) as failure:
            self._transport = None
            raise unreachable(self.name, f"the connection broke: {words(failure)}") from failure
        try:
            answer = json.loads(out.splitlines()[-1])
            packed = answer.get("packed")
        except (ValueError, IndexError, AttributeError):
            last = (reported.strip() or out.strip() or "no output").splitlines()[-1]
            raise _unable(self.name, f"ended with status {status}: {last[:200]}") from None
        if packed is None:
            raise _unable(self.name, str(answer.get("failure")))
        try:
            matches: dict[str, Any] = bench_run.unpacked(packed)
        except bench_run.BenchError as failure:
            raise _unable(self.name, str(failure)) from failure
        return matches

    def _connect(self) -> paramiko.Transport:
        if self._transport is None or not self._transport.is_active():
            target = target_of(self.name, self.options)
            self._transport = Connector(self.options, self._stack).connect(target, self.name)
            # A level is silent for minutes, and a firewall forgets who is silent.
            self._transport.set_keepalive(KEEPALIVE_SECONDS)
        return self._transport


def programs() -> str:
    """Return everything that bench_run needs, as a zip archive in base64."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(Path(bench_run.PROGRAMS, "load").glob("*.py")):
            archive.write(source, f"load/{source.name}")
    return base64.b64encode(packed.getvalue()).decode("ascii")


@dataclass(frozen=True)
class Restart:
    """Restarts the engines by a command on this machine, and waits until they serve."""

    argv: tuple[str, ...]
    session: Session

    def __call__(self, engine_run: int) -> None:
        """Make the next engine run; raise BENCH-RESTART where the engines do not come back."""
        try:
            done = subprocess.run(self.argv, capture_output=True, check=False, text=True)
        except OSError as failure:
            raise self._refusal(f"cannot be run: {failure.strerror or failure}") from failure
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise self._refusal(f"ended with {done.returncode}: {last[:200]}")
        facts = knowledge("bench/run.yml")["restart"]
        deadline = time.monotonic() + facts["ready_seconds"]
        inspection = {**inspection_of(self.session.target, self.session.client), "client": []}
        while True:
            seen = self.session.execute(inspection)
            if all(server["completion"][0] == 200 for server in seen["servers"]):
                return
            if time.monotonic() > deadline:
                raise self._refusal(f"no answer within {facts['ready_seconds']} s after it")
            time.sleep(facts["ask_seconds"])

    def _refusal(self, why: str) -> ApiaryError:
        return error("BENCH-RESTART", shlex.join(self.argv), why)


def _unable(host: str, why: str) -> ApiaryError:
    return error("BENCH-HOST", host, f"cannot run a level: {why}")
