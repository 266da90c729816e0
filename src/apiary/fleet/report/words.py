# SPDX-License-Identifier: GPL-3.0-or-later

"""The words in which a fleet's state is said, on the page and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    FleetReport,
    HostState,
    Outcome,
)

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
