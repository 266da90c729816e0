# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary bench` shows while it measures: phase, level, and how long it will take."""

from __future__ import annotations

import time

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.drive import Progress
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.progress import words
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Level, Load
from rich.progress import Progress as Bars
from rich.progress import ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from apiary.app import output


class _Left(ProgressColumn):
    """About how long the level will take yet."""

    def render(self, task: Task) -> Text:
        expected = task.fields["expected"]
        if expected is None:
            return Text("")
        left = max(0, int(expected - (task.elapsed or 0.0)))
        return Text(f"about {left // 60}:{left % 60:02d} left", style="dim")


class Shown:
    """A line for each level, and on a terminal one that engine runs while it is measured."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = output.console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn(), _Left())
        alive = output.alive(self.console) and not quiet
        self.bars = Bars(*columns, console=self.console, disable=not alive, transient=True)
        self.last: Level | None = None
        self.begun = time.monotonic()

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
            text = f"level {progress.done + 1}, {words(progress)}"
            self.bars.add_task(text, total=None, expected=expected(progress.load, self.last))
            return
        if self.bars.disable:
            output.echo(words(progress), err=True)
        else:
            self.bars.console.print(words(progress))
        if progress.level.measured is not None:
            self.last = progress.level


def expected(load: Load, last: Level | None) -> float | None:
    """Return about how many seconds a load takes, by the level before; None where none is known."""
    if load.request_rate:
        return load.requests / load.request_rate
    if last is None or last.measured is None or last.measured.e2el is None:
        return None
    waves = (load.requests + load.warmups) / (load.concurrency or 1)
    return last.measured.e2el.mean * max(1.0, waves)
