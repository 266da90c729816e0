# SPDX-License-Identifier: GPL-3.0-or-later

"""This machine as the host that sends a benchmark's load: restarts of engines, progress."""

from __future__ import annotations

import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.drive import Progress, words
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.level import inspection_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.session import Session
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error
from rich.progress import Progress as Bars
from rich.progress import TextColumn, TimeElapsedColumn

from apiary.app import output


def execute(secrets: dict[str, str], request: dict[str, Any]) -> dict[str, Any]:
    """Run one request on this machine; raise BENCH-HOST where it cannot be run at all."""
    try:
        return bench_run.run({**request, "secrets": secrets})
    except bench_run.BenchError as failure:
        raise error("BENCH-HOST", "this machine", f"cannot run a level: {failure}") from failure


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


class Shown:
    """A line for each level, and on a terminal one that lives while it is measured."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = output.console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        alive = output.alive(self.console) and not quiet
        self.bars = Bars(*columns, console=self.console, disable=not alive, transient=True)

    def __enter__(self) -> Shown:
        self.bars.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Take one step of the protocol."""
        if self.quiet:
            return
        for task in self.bars.task_ids:
            self.bars.remove_task(task)
        if progress.level is None:
            self.bars.add_task(f"level {progress.done + 1}, {words(progress)}", total=None)
        elif self.bars.disable:
            output.echo(words(progress), err=True)
        else:
            self.bars.console.print(words(progress))
