# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of each replica that runs in a container: a quadlet, or a service around docker run."""

from __future__ import annotations

import json
from pathlib import Path

from ...documents import knowledge
from ...findings import ApiaryError, has_errors
from ...plan.types import Plan, Replica
from ..files import UNITS, RenderedFile, templates
from ..launcher import program
from ..unit import digest, spec_file, unit_facts
from .review import review
from .run import CREDENTIALS, FACTS, PROGRAM, RELAY, container_run

QUADLETS = "/etc/containers/systemd"


def shared_files() -> tuple[RenderedFile, RenderedFile]:
    """Return what a host's containers share: their system calls, what prepares them."""
    path = knowledge(FACTS)["rights"]["seccomp"]
    return (
        RenderedFile(path, "0644", _seccomp()),
        RenderedFile(PROGRAM, "0755", program("container")),
    )


def _seccomp() -> str:
    return json.dumps(knowledge("serving/seccomp.yml")["profile"], indent=1) + "\n"


def container_files(plan: Plan, replica: Replica, index: int) -> tuple[RenderedFile, ...]:
    """Return a replica's launch document and its unit.

    Raises ApiaryError where the plan's replicas could not run in a container.
    """
    findings = tuple(review(plan))
    if has_errors(findings):
        raise ApiaryError(*(finding for finding in findings if finding.severity == "error"))
    return (spec_file(plan, replica, index), _unit(plan, replica, index))


def unit_path(plan: Plan, replica: Replica) -> str:
    """Return where a replica's unit file lies; Podman's generator reads a directory of its own."""
    if plan.deployment.engine.runtime == "quadlet":
        return f"{QUADLETS}/{Path(replica.unit).stem}.container"
    return f"{UNITS}/{replica.unit}"


def _unit(plan: Plan, replica: Replica, index: int) -> RenderedFile:
    facts = knowledge(FACTS)
    shared = unit_facts(plan, replica, index)
    pull_seconds = facts["limits"]["pull_seconds"]
    life = knowledge("serving/life.yml")
    pause_seconds = life["backoff"]["most_seconds"]
    start_seconds = shared["spec"].start_timeout_seconds
    if plan.deployment.engine.runtime == "quadlet":
        start_seconds *= life["start"]["most_timeouts"]
    text = (
        templates()
        .get_template(f"containers/replica.{plan.deployment.engine.runtime}.j2")
        .render(
            **shared,
            run=container_run(plan, replica, index),
            rights=facts["rights"],
            sandbox=facts["sandbox"]["entries"],
            program=PROGRAM,
            credentials_directory=CREDENTIALS,
            seccomp_digest=digest(_seccomp()),
            relay=RELAY,
            # The engine's own limit is the supervisor's, whom Podman's conmon lets ask for no more.
            start_seconds=start_seconds + pull_seconds + pause_seconds,
            stop_spare_seconds=facts["limits"]["stop_spare_seconds"],
        )
    )
    return RenderedFile(unit_path(plan, replica), "0644", text, unit=replica.unit)
