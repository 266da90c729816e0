# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet for a terminal: the answer, the hosts that need somebody, findings over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    FleetReport,
    HostReport,
    HostState,
    Outcome,
)
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from apiary.app.output import plain_table

_STYLES = {
    "failing": "bold red",
    "quarantined": "red",
    "unreached": "magenta",
    "unknown": "dim",
    "warning": "yellow",
    "ok": "green",
}
_LISTED = 20


def summary(report: FleetReport) -> RenderableType:
    """Return the fleet for a terminal."""
    return Group(*_parts(report))


def _parts(report: FleetReport) -> Iterator[RenderableType]:
    total = len(report.hosts)
    verdict = ("accepted", "bold green") if report.accepted else ("not accepted", "bold red")
    hosts = "1 host" if total == 1 else f"{total} hosts"
    yield Text.assemble(verdict, f": {hosts}: {counts_text(report)}")
    if report.rollout:
        yield Text(outcome_text(report.rollout))
    for one in report.costs:
        yield Text(f"{one['deployment']}: {'; '.join(one['text'])} ({one['path']})")
    listed = [host for host in report.hosts if host.state != "ok" or host.odd]
    if listed:
        yield Text()
        yield _hosts(listed[:_LISTED])
        if len(listed) > _LISTED:
            yield Text(f"… and {len(listed) - _LISTED} more: see the page of --out", style="dim")
    if report.groups:
        yield Text()
        yield _findings(report)
    differs = [item for item in report.shared if len(item.values) > 1]
    if differs:
        yield Text()
        table = plain_table("GPU", "fact", "value", "hosts", title="What peers do not share")
        for shared in differs:
            for value in shared.values:
                table.add_row(shared.peers, shared.fact, value.value, fold(value.hosts))
        yield table


def _hosts(listed: list[HostReport]) -> Table:
    table = plain_table("host", "state", "rack", "why", title="Hosts that stand out")
    for item in listed:
        odd = "; ".join(f"{odd.fact} {odd.value}, peers {odd.usual}" for odd in item.odd[:3])
        why = item.why if item.state != "ok" else odd
        table.add_row(
            item.host,
            Text(STATE_NAMES[item.state], style=_STYLES[item.state]),
            item.place.rack or "",
            why,
        )
    return table


def _findings(report: FleetReport) -> Table:
    table = plain_table("code", "severity", "hosts", "which", title="Findings")
    for group in report.groups:
        table.add_row(group.code, group.severity, str(len(group.hosts)), fold(group.hosts))
    return table


STATE_NAMES: Mapping[HostState, str] = {
    "failing": "failing",
    "quarantined": "in quarantine",
    "unreached": "not reached",
    "unknown": "unknown",
    "warning": "with warnings",
    "ok": "accepted",
}


def counts_text(report: FleetReport) -> str:
    """Return how many hosts are in which state: "3 failing, 97 accepted"."""
    counts = dict(report.counts)
    return ", ".join(
        f"{counts[state]} {reported}" for state, reported in STATE_NAMES.items() if state in counts
    )


def outcome_text(outcome: Outcome) -> str:
    """Return how a rollout ended, in one sentence."""
    counts = ", ".join(f"{count} {state}" for state, count in outcome.counts)
    when = f" at {outcome.ended}" if outcome.ended else ""
    return (
        f"Rollout {outcome.run}: {outcome.state}{when}"
        + (f" ({counts})" if counts else "")
        + (f": {outcome.why}" if outcome.why else "")
    )
