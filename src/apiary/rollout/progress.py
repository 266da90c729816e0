# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary rollout` shows: the plan of waves, hosts by phase while they run, how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.progress import (
    Phase,
    Took,
    clock,
    count,
    seconds_left,
    told,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    HostRun,
)
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from apiary.app import output

# A screen of them; the rest is in the numbers above.
MOST_SHOWN = 12
_PHASES: dict[str, Phase] = {
    "begun": "running",
    "done": "done",
    "waiting": "waiting",
    "unreachable": "unreachable",
}


def phase_of(one: HostRun) -> Phase:
    """Return the phase that a host's outcome is shown as."""
    return _PHASES.get(one.outcome, "failed")


class Progress:
    """Plain lines, or on a terminal a table that lives while a wave runs."""

    def __init__(self, quiet: bool, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or output.console(stderr=True)
        self.alive = output.alive(self.console) and not quiet
        self.live: Live | None = None
        self.run: FleetRollout | None = None
        self.hosts: list[str] = []
        self.tasks: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.begun = 0.0

    def wave(self, run: FleetRollout, number: int, hosts: Sequence[str]) -> None:
        """A wave begins with these hosts."""
        self.run, self.hosts, self.begun = run, list(hosts), time.monotonic()
        self.tasks, self.failed = {}, {}
        wave = run.waves[number - 1]
        self._line(f"wave {number} of {len(run.waves)} ({wave.why}): {fold(hosts)}")
        if self.alive:
            self.live = Live(
                console=self.console,
                transient=True,
                refresh_per_second=4,
                get_renderable=self._table,
            )
            self.live.start()

    def event(self, event: Mapping[str, Any]) -> None:
        """ansible-runner tells of something."""
        data = event.get("event_data") or {}
        host, kind = data.get("host"), event.get("event", "")
        if host not in self.hosts:
            return
        if kind == "runner_on_start":
            self.tasks[host] = str(data.get("task", ""))
        elif kind == "runner_on_unreachable" or (
            kind == "runner_on_failed" and not data.get("ignore_errors")
        ):
            reported = str((data.get("res") or {}).get("msg", "")).strip().splitlines()
            self.failed.setdefault(
                host, f"{data.get('task', '')}: {reported[0] if reported else ''}"
            )

    def ended(self, run: FleetRollout, number: int) -> None:
        """A wave has ended."""
        self.run = run
        if self.live is not None:
            self.live.stop()
            self.live = None
        for item in run.hosts:
            if item.wave == number and item.outcome not in ("done", "begun", "waiting"):
                reported = item.reason.strip().splitlines()
                self._line(
                    f"  {item.outcome}: {item.host}: {item.task}: {reported[0] if reported else ''}"
                )
        left = clock(self._left(number))
        spent = clock(run.waves[number - 1].seconds)
        rest = f"; about {left} left" if left and number < len(run.waves) else ""
        self._line(f"  wave {number} took {spent}; {self._numbers()}{rest}")

    def note(self, text: str) -> None:
        """Something is to be known now."""
        self._line(f"  {text}")

    def close(self) -> None:
        """Give the terminal back."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _line(self, text: str) -> None:
        if self.quiet:
            return
        if self.alive:
            self.console.print(Text(text))
        else:
            click.echo(text, err=True)

    def _numbers(self) -> str:
        if self.run is None:
            return ""
        aside = {item.host for item in self.run.skipped}
        phases = [self._phase(host) for host in self.run.hosts if host.host not in aside]
        skipped: list[Phase] = ["skipped"] * len(aside)
        return told(count([*phases, *skipped]))

    def _phase(self, one: HostRun) -> Phase:
        """Return a host's phase now: a failure is one before its wave has ended."""
        phase = phase_of(one)
        return "failed" if phase == "running" and one.host in self.failed else phase

    def _left(self, ended: int) -> float | None:
        run = self.run
        if run is None:
            return None
        took = [Took(len(wave.hosts), wave.seconds) for wave in run.waves if wave.ended_at]
        running = None if run.waves[ended - 1].ended_at else time.monotonic() - self.begun
        begun = [wave for wave in run.waves if wave.ended_at is None]
        return seconds_left(took, [len(item.hosts) for item in begun], running)

    def _table(self) -> Group:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for host, why in list(self.failed.items())[:MOST_SHOWN]:
            table.add_row(Text(f"  {host}", style="red"), Text(why, style="red"))
        at_work = [host for host in self.hosts if host in self.tasks and host not in self.failed]
        for host in at_work[:MOST_SHOWN]:
            table.add_row(Text(f"  {host}"), Text(self.tasks[host], style="dim"))
        number = 1 + sum(wave.ended_at is not None for wave in self.run.waves) if self.run else 1
        left = clock(self._left(number)) if self.run and number <= len(self.run.waves) else ""
        more = f"; about {left} left" if left else ""
        head = f"{self._numbers()}; {clock(time.monotonic() - self.begun)} in this wave{more}"
        return Group(Text(head, style="bold"), table)


def waves_table(run: FleetRollout, title: str) -> Table:
    """Return the waves of a run, with how many of their hosts came out how."""
    table = Table(title=title, title_justify="left")
    for column in ("wave", "hosts", "which", "why", "how it went"):
        table.add_column(column, overflow="fold", no_wrap=column in ("wave", "hosts"))
    for number, wave in enumerate(run.waves, 1):
        phases = [phase_of(host) for host in run.hosts if host.wave == number]
        went = told(count(phases)) if wave.begun_at else "waiting"
        spent = f" in {clock(wave.seconds)}" if wave.ended_at else ""
        name = f"{number} canary" if wave.canary else str(number)
        table.add_row(name, str(len(wave.hosts)), fold(wave.hosts), wave.why, went + spent)
    return table


def failed_table(hosts: Sequence[HostRun]) -> Table:
    """Return the hosts that did not end well, in the words of their failure."""
    table = Table(title="Not done", title_justify="left")
    for column in ("host", "wave", "outcome", "tries", "task", "why"):
        table.add_column(column, overflow="fold", no_wrap=column in ("host", "wave"))
    waiting = [host for host in hosts if host.outcome == "waiting"]
    for item in hosts:
        if item.outcome == "waiting":
            continue
        why = "\n".join(f"{f.code}: {f.message}" for f in item.findings) or item.reason
        table.add_row(item.host, str(item.wave), item.outcome, str(item.attempts), item.task, why)
    if waiting:
        names = fold([item.host for item in waiting])
        table.add_row(f"{len(waiting)} hosts", "", "waiting", "", "", f"not begun: {names}")
    return table
