# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary rollout` shows: the plan of waves, hosts by phase while they run, how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
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
# What a person looks for first stands first.
PHASES = ("failed", "unreachable", "running", "done", "skipped", "waiting")


def phase_of(host: HostRun) -> str:
    """Return the phase that a host's outcome is shown as."""
    phase = "running" if host.outcome == "begun" else host.outcome
    return phase if phase in PHASES else "failed"


def phases_text(phases: Iterable[str]) -> str:
    """Return how many hosts are in each phase: "1 failed, 3 running, 8 waiting"."""
    counts = Counter(phases)
    listed = (f"{counts[phase]} {phase}" for phase in PHASES if counts[phase])
    return ", ".join(listed) or "no hosts"


def seconds_left(run: FleetRollout, running_for: float = 0.0) -> float | None:
    """Return how long the rest of a run takes, each wave as long as the longest that has ended.

    ``running_for`` is how long a wave has been at it. None where no wave has ended.
    """
    ended = [wave.seconds for wave in run.waves if wave.ended_at]
    if not ended:
        return None
    longest = max(ended)
    return max(0.0, longest * (len(run.waves) - len(ended)) - min(running_for, longest))


def clock(seconds: float | None) -> str:
    """Return a time span as people write it: "3 min", "1 h 20 min", "" for none."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


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
        left = clock(seconds_left(run))
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
            output.echo(text, err=True)

    def _numbers(self) -> str:
        if self.run is None:
            return ""
        aside = {item.host for item in self.run.skipped}
        phases = [self._phase(host) for host in self.run.hosts if host.host not in aside]
        return phases_text([*phases, *["skipped"] * len(aside)])

    def _phase(self, host: HostRun) -> str:
        """Return a host's phase now: a failure is one before its wave has ended."""
        phase = phase_of(host)
        return "failed" if phase == "running" and host.host in self.failed else phase

    def _table(self) -> Group:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for host, why in list(self.failed.items())[:MOST_SHOWN]:
            table.add_row(Text(f"  {host}", style="red"), Text(why, style="red"))
        at_work = [host for host in self.hosts if host in self.tasks and host not in self.failed]
        for host in at_work[:MOST_SHOWN]:
            table.add_row(Text(f"  {host}"), Text(self.tasks[host], style="dim"))
        spent = time.monotonic() - self.begun
        left = clock(seconds_left(self.run, spent)) if self.run else ""
        more = f"; about {left} left" if left else ""
        head = f"{self._numbers()}; {clock(spent)} in this wave{more}"
        return Group(Text(head, style="bold"), table)


def waves_table(run: FleetRollout, title: str) -> Table:
    """Return the waves of a run, with how many of their hosts came out how."""
    table = Table(title=title, title_justify="left")
    for column in ("wave", "hosts", "which", "why", "how it went"):
        table.add_column(column, overflow="fold", no_wrap=column in ("wave", "hosts"))
    for number, wave in enumerate(run.waves, 1):
        phases = [phase_of(host) for host in run.hosts if host.wave == number]
        went = phases_text(phases) if wave.begun_at else "waiting"
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
