# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary bench` shows while it measures: phase and level."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.drive import Progress, words
from rich.progress import Progress as Bars
from rich.progress import TextColumn, TimeElapsedColumn

from apiary.app import output


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
