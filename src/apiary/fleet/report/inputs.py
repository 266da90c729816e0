# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and rollouts left on the controller, host by host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Acceptance
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    HostInput,
    Place,
    Source,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    FLEET,
    attempt,
    host_directory,
    ledger_path,
    load_quarantine,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Survey
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import age_seconds

from apiary.fleet.hosts import FleetHost

_NAMES = ("survey", "acceptance", "quarantine")


def reported_hosts(artifacts: Path) -> tuple[FleetHost, ...]:
    """Return the hosts that have documents in a directory, for where no inventory is given."""
    if not artifacts.is_dir():
        raise error(
            "FILE-UNREADABLE",
            str(artifacts),
            "is no directory of artifacts",
            origin="`ansible-playbook playbooks/verify.yml` writes what apiary_artifacts names",
        )
    names = {
        path.name
        for path in artifacts.iterdir()
        if path.name != FLEET and any((path / f"{name}.json").is_file() for name in _NAMES)
    }
    names |= {path.stem for path in (artifacts / FLEET / "ledger").glob("*.json")}
    if not names:
        raise error(
            "FILE-UNREADABLE",
            str(artifacts),
            "holds no document of any host",
            origin="playbooks/verify.yml writes them, --inventory names hosts",
        )
    return tuple(FleetHost(name, artifacts=str(artifacts)) for name in sorted(names))


def directory_of(host: FleetHost, artifacts: Path | None) -> Path:
    """Return where a host's documents are."""
    return host_directory(artifacts or Path(host.artifacts), host.name)


def load_costs(artifacts: Path) -> Iterator[dict[str, Any]]:
    """Yield what the newest benchmark of each deployment says that serving takes."""
    for folder in sorted((artifacts / "bench").glob("*")):
        for path in sorted(folder.glob("*/bench.json"))[-1:]:
            found = {"deployment": folder.name, "path": str(path)}
            try:
                read = json.loads(read_text(str(path)))
                for cost in [one["cost"] for one in read["searches"] if one.get("cost")][:1]:
                    text = list(map(str, cost["text"]))
                    yield {**found, **cost, "measured": str(read["created"]), "text": text}
            except (ApiaryError, AttributeError, LookupError, TypeError, ValueError):
                yield {**found, "text": ["its result cannot be read"]}


def load_host(host: FleetHost, artifacts: Path | None, now: datetime) -> HostInput:
    """Return what is known of a host; a document that is missing or damaged loses no host."""
    directory = directory_of(host, artifacts)
    paths = {name: directory / f"{name}.json" for name in _NAMES}
    paths["ledger"] = ledger_path(directory)
    problems: list[Finding] = []
    survey = attempt(Survey, paths["survey"], problems)
    acceptance = attempt(Acceptance, paths["acceptance"], problems)
    ledger = attempt(Ledger, paths["ledger"], problems)
    quarantine = load_quarantine(directory, problems)
    last = ledger.entries[-1] if ledger and ledger.entries else None
    times = {
        "survey": survey.collected_at if survey else None,
        "acceptance": acceptance.collected_at if acceptance else None,
        "ledger": (last.ended_at or last.begun_at) if last else None,
    }
    return HostInput(
        host.name,
        Place(host.site, host.row, host.rack),
        survey,
        acceptance,
        quarantine,
        ledger,
        host.groups,
        tuple(
            Source(name, str(path), times.get(name), age_seconds(times.get(name), now))
            for name, path in paths.items()
            if path.exists()
        ),
        tuple(problems),
    )
