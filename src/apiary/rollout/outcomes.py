# SPDX-License-Identifier: GPL-3.0-or-later

"""How hosts came out of a playbook, from Ansible's numbers and from what the playbook left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Outcome
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import BAD, outcome_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine

from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.rollout.store import Store


@dataclass(frozen=True)
class HostOutcome:
    """How one host came out, and in which words."""

    outcome: Outcome
    task: str = ""
    reason: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def bad(self) -> bool:
        """Return whether it counts as a failure."""
        return self.outcome in BAD


def host_outcomes(
    hosts: Sequence[str],
    ended: Ended,
    store: Store,
    before: Mapping[str, Quarantine | None] | None,
    must_tell: bool,
    own: bool = True,
) -> dict[str, HostOutcome]:
    """Return how each host came out of one run of a playbook.

    ``before`` are the quarantines there were, None for a playbook that makes none. ``must_tell``
    says that the playbook tells of each host it is done with, so that silence is no success.
    ``own`` playbooks put each host aside that fails, maybe in the very words of the last time; of
    another's failure a quarantine that was there says nothing.
    """
    reported = ended.custom.get("apiary_outcomes")
    reported = reported if isinstance(reported, Mapping) else {}
    result = {}
    for host in hosts:
        now = store.quarantine(host) if before is not None else None
        fresh = now if before is not None and now != before[host] else None
        failed = ended.failed.get(host)
        aside = fresh is not None or (own and now is not None and failed is not None)
        outcome = outcome_of(host, ended.counts, reported, aside, host in ended.touched)
        if outcome == "done" and host not in reported:
            if ended.status == "canceled" or (ended.aborted and not must_tell):
                outcome = "interrupted"
            elif must_tell:
                outcome = "waiting"
        result[host] = _in_words(outcome, failed, now if aside else None)
    return result


def _in_words(outcome: Outcome, failed: Failed | None, aside: Quarantine | None) -> HostOutcome:
    if outcome not in BAD:
        return HostOutcome(outcome)
    if outcome == "interrupted" and failed is None:
        return HostOutcome(
            outcome, reason="ansible-playbook ended before it was done with the host"
        )
    if aside is not None:
        findings = aside.findings or (failed.findings if failed else ())
        return HostOutcome(outcome, aside.task, aside.message.strip(), findings)
    if failed is not None:
        return HostOutcome(outcome, failed.task, failed.message, failed.findings)
    return HostOutcome(outcome, reason="the playbook says so, without a reason")
