# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a fleet for a terminal: what stands out, what would change where, what results."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Capacity,
    Change,
    ChangeGroup,
    DeploymentCapacity,
    FleetPlan,
    HostGroup,
    Outlier,
)
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from apiary.app.output import plain_table

LISTED = 6  # ranges of hosts that are named; --json and --out have all
FILES = 4  # changed files of one directory that share a line
CAUSES = {"to apply": "to apply", "drift": "drift", "unknown": "cause unknown"}
NEUTRAL = {
    "name": "name ({host})",
    "address": "address ({address})",
    "PCI address": "PCI addresses ({pci1}, …)",
    "UUID": "UUIDs ({uuid1}, …)",
    "release": "release ({release1})",
}
STYLES = {"+": "green", "-": "red", "@": "cyan"}


def fleet_tables(plan: FleetPlan, diff: bool) -> Iterator[RenderableType]:
    """Yield the parts of a plan, worst first; ``diff`` adds the text of each change."""
    yield Text(_headline(plan), style="bold")
    yield from (Text(line) for line in _remarks(plan))
    if plan.outliers:
        yield Text("\nStands out among its peers", style="bold")
        yield from _outliers(plan.outliers)
    if plan.changes:
        yield Text("\nDrifted" if plan.drift else "\nWould change", style="bold")
        yield _groups(plan.groups)
        for group in plan.changes:
            yield Text()
            yield _change(group, diff)
    if plan.capacity.deployments or plan.capacity.gpus:
        yield Text("\nCapacity, when this is applied", style="bold")
        yield from _capacity(plan.capacity)


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _who(hosts: Sequence[str]) -> str:
    """Return hosts as ranges, the first few of them."""
    ranges = fold(hosts).split(", ")
    if len(ranges) <= LISTED:
        return ", ".join(ranges)
    return f"{', '.join(ranges[:LISTED])} and {len(ranges) - LISTED} more"


def _headline(plan: FleetPlan) -> str:
    totals = plan.totals
    parts = []
    if plan.drift:
        parts.append(f"{totals.drifted:,} drifted" if totals.drifted else "no drift")
        parts += [f"{totals.unclear:,} differ for a cause unknown"] if totals.unclear else []
    else:
        reboot = f" ({totals.rebooting:,} with a reboot)" if totals.rebooting else ""
        parts.append(f"{totals.changing:,} would change{reboot}")
        parts.append(f"{totals.unchanged:,} would not")
    parts += [f"{totals.refused:,} refused"] if totals.refused else []
    parts += [f"{totals.unseen:,} not seen"] if totals.unseen else []
    parts += [f"{totals.quarantined:,} quarantined"] if totals.quarantined else []
    return f"{_hosts(totals.hosts)}: {', '.join(parts)}"


def _remarks(plan: FleetPlan) -> Iterator[str]:
    totals = plan.totals
    if plan.oldest is not None:
        until = f" to {plan.newest}" if plan.newest != plan.oldest else ""
        yield f"surveyed {plan.oldest}{until}"
    if plan.unseen:
        yield f"not seen: {_who([item.host for item in plan.unseen])}"
    if plan.drift and totals.to_apply:
        yield f"{_hosts(totals.to_apply)} with changes of the inventory to apply, not shown"
    elif not plan.drift and totals.drifted:
        yield f"{_hosts(totals.drifted)} drifted: changed since they were applied"


def _outliers(found: Sequence[Outlier]) -> Iterator[RenderableType]:
    """Yield hosts with all that sets them apart."""
    by_hosts: dict[tuple[str, ...], list[Outlier]] = {}
    for item in found:
        by_hosts.setdefault(item.hosts, []).append(item)
    for hosts, odd in by_hosts.items():
        yield Text(f"{_hosts(len(hosts))}: {_who(hosts)}", style="yellow")
        table = plain_table("", "", "")
        for item in odd:
            table.add_row(
                item.fact,
                item.value or "not told",
                f"{item.agree:,} of {item.of:,} ({item.peers}): {item.expected}",
            )
        yield Padding(table, (0, 0, 0, 2))


def _groups(groups: Sequence[HostGroup]) -> RenderableType:
    """Return a row for all hosts that have the same changes."""
    table = plain_table("hosts", "", "changes", right=(0,))
    for group in groups:
        if not group.changes:
            table.add_row(f"{len(group.hosts):,}", Text("the others", "dim"), Text("none", "dim"))
        else:
            table.add_row(f"{len(group.hosts):,}", _who(group.hosts), "\n".join(group.changes))
    return table


def _change(group: ChangeGroup, diff: bool) -> RenderableType:
    """Return one group of identical changes, what it is and whose."""
    cause = "refused" if group.refused else CAUSES[group.cause]
    head = Text.assemble((group.name, "bold"), f"  {_hosts(len(group.hosts))}  ", (cause, "cyan"))
    parts: list[RenderableType] = [head]
    lines: list[RenderableType] = [Text(_who(group.hosts), "dim")]
    for refusal in group.refused:
        lines.append(Text(f"{refusal.code}: {refusal.message}", "red"))
    lines += _with_diffs(group.changes) if diff else _in_short(group.changes)
    lines += [Text(f"reboot: {reason}", "yellow") for reason in group.reboot]
    if not (group.changes or group.refused or group.reboot):
        lines.append(Text("would change; the survey does not say what"))
    if group.neutral:
        own = ", ".join(NEUTRAL[kind] for kind in group.neutral)
        lines.append(Text(f"the same everywhere but for the host's own {own}", "dim"))
    parts += [Padding(line, (0, 0, 0, 2)) for line in lines]
    return Group(*parts)


def _with_diffs(changes: Sequence[Change]) -> Iterator[RenderableType]:
    for change in changes:
        yield Text(f"{change.subject}{_size([change])}")
        for line in _lines(change):
            yield Padding(Text(line, STYLES.get(line[:1], "")), (0, 0, 0, 2))


def _in_short(changes: Sequence[Change]) -> Iterator[RenderableType]:
    """Yield a line a change; many files of one directory share a line."""
    directories: dict[str, list[Change]] = {}
    for change in changes:
        directory = change.subject.rpartition("/")[0] if change.subject.startswith("/") else ""
        directories.setdefault(directory, []).append(change)
    for directory, members in directories.items():
        if directory and len(members) >= FILES:
            yield Text(f"{directory}/: {len(members)} files{_size(members)}")
        else:
            yield from (Text(f"{change.subject}{_size([change])}") for change in members)


def _lines(change: Change) -> list[str]:
    return list(
        difflib.unified_diff(
            change.before.splitlines(), change.after.splitlines(), lineterm="", n=2
        )
    )[2:]


def _size(changes: Sequence[Change]) -> str:
    """Return how many lines changes add and take away."""
    lines = [line[0] for change in changes for line in _lines(change)]
    more, less = lines.count("+"), lines.count("-")
    return f"  +{more:,} -{less:,}" if lines else ""


def _capacity(capacity: Capacity) -> Iterator[RenderableType]:
    table = plain_table(
        "deployment",
        "layout",
        "hosts",
        "up",
        "now",
        "then",
        "GPUs",
        "worst loss",
        right=(2, 3, 4, 5, 6),
    )
    for deployment in capacity.deployments:
        table.add_row(
            deployment.deployment,
            ", ".join(deployment.layouts) or "–",
            f"{deployment.hosts:,}",
            "?" if deployment.up is None else f"{deployment.up:,}",
            f"{deployment.running:,}",
            f"{deployment.planned:,}",
            f"{deployment.gpus:,}",
            _loss(deployment),
        )
    if capacity.deployments:
        yield table
        yield Text("up, now, then: replicas that answer, that run, that would", "dim")
    idle = f", {capacity.idle:,} idle"
    on = f" on {_who(capacity.idle_hosts)}" if capacity.idle_hosts else ""
    yield Text(
        f"GPUs: {capacity.gpus:,}; {capacity.used_now:,} used now, {capacity.used:,} then{idle}{on}"
    )


def _loss(one: DeploymentCapacity) -> str:
    return f"{one.lost:,} of {one.planned:,} ({one.worst})" if one.planned else "–"
