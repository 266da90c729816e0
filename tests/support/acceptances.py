# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and rollouts would have left of a fleet that was never there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import (
    Acceptance,
    Excerpt,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import (
    Applied,
    Asked,
    Entry,
    Ledger,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    HostInput,
    Place,
    Source,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    HostRun,
    Options,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine, Survey
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import Check

from support.surveys import CONCERNS, PER_RACK, fleet, rack_of
from support.topology.topologies import MI325X_BUSES, bdf

RUN = "20261122T080000Z-site"
LATER = "2026-11-22T09:05:00Z"
ASKED = Asked("site")


def checks(host: str) -> tuple[Check, ...]:
    """Return the checks of a host on which everything is right, as many as a real one has."""
    made = [
        Check("ACCEPT-TOPOLOGY", host, "pass", "8 GPUs, 28 links", "no errors or warnings"),
        Check("ACCEPT-GPU-COUNT", host, "pass", "8 usable GPUs", "8"),
        Check("ACCEPT-LINKS", host, "pass", "28 of 28 pairs of GPUs linked by xGMI", "all up"),
        Check.from_fields(
            code="ACCEPT-MEMORY",
            subject=host,
            state="pass",
            found="3023 GiB",
            expected="2560 GiB",
            severity="warning",
            remedy="",
            source=None,
        ),
        Check.from_fields(
            code="ACCEPT-FIRMWARE",
            subject=host,
            state="pass",
            found="the same of 12 components",
            expected="the same",
            severity="warning",
            remedy="",
            source=None,
        ),
    ]
    for code, found, expected in (
        ("ACCEPT-PCIE", "32 GT/s x16", "32 GT/s x16"),
        ("ACCEPT-PCIE-ERRORS", "replay_count 0", "at most 100 of each of 4 counters"),
        ("ACCEPT-UNCORRECTABLE", "none", "at most 0 uncorrectable errors in each of 20 blocks"),
        ("ACCEPT-POWER-CAP", "1000 W", "1000 W"),
    ):
        made += [
            Check(code, f"{host}: {bdf(bus)}", "pass", found, expected) for bus in MI325X_BUSES
        ]
    for unit in (f"apiary-chat-{number}.service" for number in (0, 1)):
        made += [
            Check("ACCEPT-REPLICA", f"{host}: {unit}", "pass", "running", "running"),
            Check("ACCEPT-HEALTH", f"{host}: {unit}", "pass", "HTTP 200", "HTTP 200"),
        ]
    made += [
        Check("ACCEPT-DRIFT", f"{host}: file /etc/{n}", "pass", "0", "0", role="host_tuning")
        for n in range(12)
    ]
    return tuple(made)


def failed(made: Acceptance, code: str, found: str, remedy: str, text: str = "") -> Acceptance:
    """Return an acceptance in which the first check of a code fails."""
    first = next(one for one in made.checks if one.code == code)
    bad = Check.from_fields(**{**vars(first), "state": "fail", "found": found, "remedy": remedy})
    excerpt = Excerpt(code, bad.subject, "/sys/class/drm/card0/device/ras/umc_err_count", text)
    return replace(
        made,
        accepted=made.accepted and bad.severity != "error",
        checks=tuple(bad if one is first else one for one in made.checks),
        excerpts=(*made.excerpts, excerpt) if text else made.excerpts,
    )


def acceptance_of(survey: Survey) -> Acceptance | None:
    """Return the acceptance that such a host would have, None where it could not be reached."""
    if not survey.reached:
        return None
    made = Acceptance(survey.host, LATER, True, checks(survey.host))
    if survey.facts.health == "sick":
        remedy = "drain the host and reset the GPUs; replace the GPU if the errors return"
        made = failed(
            made, "ACCEPT-UNCORRECTABLE", "3 in umc", remedy, "umc_err_count: ue: 3 ce: 41"
        )
        lost = Finding.from_fields(
            code="TOPO-GPU-MISSING",
            severity="error",
            subject=survey.host,
            message="7 GPUs, and boards of MI325X have 8",
            remedy="power-cycle the host, then call the vendor",
            source=None,
        )
        return replace(made, accepted=False, complaints=(lost,))
    if survey.host.endswith("67"):
        return failed(made, "ACCEPT-MEMORY", "2304 GiB", "see which modules the BIOS found")
    return made


def quarantine_of(host: str) -> Quarantine:
    """Return the quarantine.json of a host on which an install failed."""
    installing = Finding.from_fields(
        code="ROCM-INSTALL",
        severity="error",
        subject=host,
        message="apt-get ended with 100",
        remedy="end what holds the lock, then run again",
        source=None,
    )
    message = "apt-get: E: Could not get lock /var/lib/dpkg/lock-frontend"
    return Quarantine(host, "Rocm | Install packages", message, (installing,))


def ledger_of(host: str, good: bool) -> Ledger:
    """Return the ledger of a host after its part in the one rollout."""
    entry = Entry(
        RUN,
        1,
        "ann@ops",
        "ops",
        ASKED,
        "2026-11-22T08:10:00Z",
        "2026-11-22T08:19:00Z",
        "done" if good else "quarantined",
        task="" if good else "Rocm | Install packages",
        reason="" if good else "apt-get ended with 100",
    )
    applied = tuple(Applied(one, "2026-11-22T08:19:00Z", RUN) for one in CONCERNS if good)
    return Ledger(host, (entry,), applied)


def rollout_of(hosts: Iterable[str], bad: frozenset[str]) -> FleetRollout:
    """Return the one rollout, stopped at what is bad."""
    return FleetRollout(
        RUN,
        "stopped" if bad else "done",
        ASKED,
        Options(),
        "ann@ops",
        "ops",
        4711,
        "2026-11-22T08:00:00Z",
        "2026-11-22T08:40:00Z",
        hosts=tuple(HostRun(one, 1, "quarantined" if one in bad else "done") for one in hosts),
        stopped=f"{len(bad)} hosts failed, 0 may" if bad else "",
    )


def inputs(count: int) -> Iterator[HostInput]:
    """Yield what is known of a fleet; every 61st host is in quarantine, every 71st unknown."""
    for index, survey in enumerate(fleet(count)):
        place = Place("north", f"{index // (PER_RACK * 8) + 1}", rack_of(index))
        aside = index % 61 == 60 and survey.reached
        found = acceptance_of(survey)
        yield HostInput(
            survey.host,
            place,
            None if index % 71 == 70 else survey,
            None if index % 71 == 70 or aside else found,
            quarantine_of(survey.host) if aside else None,
            ledger_of(survey.host, not aside),
            ("gpu_hosts",),
            (
                Source("survey", f"artifacts/{survey.host}/survey.json", survey.collected_at, 900),
                Source("acceptance", f"artifacts/{survey.host}/acceptance.json", LATER, 600),
            )
            if index % 71 != 70
            else (),
        )


def write_inputs(artifacts: Path, given: Iterable[HostInput]) -> None:
    """Write all documents where the report looks for them."""
    hosts = []
    bad = set()
    for one in given:
        hosts.append(one.host)
        directory = artifacts / one.host
        directory.mkdir(parents=True, exist_ok=True)
        for name, document in (("survey", one.survey), ("acceptance", one.acceptance)):
            if document is not None:
                (directory / f"{name}.json").write_text(dumps(document), encoding="utf-8")
        if one.quarantine:
            bad.add(one.host)
            text = dumps(one.quarantine)
            (directory / "quarantine.json").write_text(text, encoding="utf-8")
        if one.ledger:
            path = artifacts / "fleet/ledger" / f"{one.host}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dumps(one.ledger), encoding="utf-8")
    path = artifacts / "fleet/runs" / RUN / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(rollout_of(hosts, frozenset(bad))), encoding="utf-8")
