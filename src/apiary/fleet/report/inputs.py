# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and rollouts left on the controller, host by host."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Acceptance
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
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
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import FleetRollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Survey

from apiary.fleet.hosts import FleetHost

T = TypeVar("T")
# The fleet's own documents lie beside those of the hosts.
FLEET = "fleet"
_NAMES = ("survey", "acceptance", "quarantine")


@dataclass(frozen=True)
class Read:
    """One document: the parsed data, or why there is none."""

    data: Any = None
    problems: tuple[Finding, ...] = ()


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


def load_hosts(
    hosts: Sequence[FleetHost], artifacts: Path | None, now: datetime.datetime
) -> tuple[HostInput, ...]:
    """Return what is known of every host; a document that is missing or damaged loses no host."""
    return tuple(_load(host, artifacts or Path(host.artifacts), now) for host in hosts)


def directory_of(host: FleetHost, artifacts: Path | None) -> Path:
    """Return where a host's documents are; a name that is a path does not lead out of there."""
    name = host.name.replace("/", "_")
    return (artifacts or Path(host.artifacts)) / (name if name.strip(".") else f"_{name}")


def load_run(artifacts: Path, run: str | None) -> FleetRollout | None:
    """Return a rollout: the one asked for, else the last that was no check; None without one.

    Raises FILE-UNREADABLE where the one asked for is not there, DOC-… where it is damaged.
    """
    runs = artifacts / FLEET / "runs"
    if run is None:
        # Names of runs begin with their time; a check changed nothing.
        for path in sorted(runs.glob("*/run.json"), reverse=True):
            result = _run(path)
            if result is not None and not result.asked.check:
                return result
        return None
    path = runs / run / "run.json"
    result = _run(path)
    if result is not None:
        return result
    existing = ", ".join(sorted(path.name for path in runs.glob("*"))[-5:])
    raise error(
        "FILE-UNREADABLE",
        str(path),
        "cannot be read: there is no such run",
        origin=f"there are {existing}" if existing else "leave out --run, for there is none",
    )


def _run(path: Path) -> FleetRollout | None:
    read = _read(path)
    if read.problems:
        raise ApiaryError(*read.problems)
    return None if read.data is None else from_document(FleetRollout, read.data, str(path))


def _load(host: FleetHost, artifacts: Path, now: datetime.datetime) -> HostInput:
    directory = directory_of(host, artifacts)
    read = {name: _read(directory / f"{name}.json") for name in _NAMES}
    paths = {name: directory / f"{name}.json" for name in _NAMES}
    paths["ledger"] = artifacts / FLEET / "ledger" / f"{directory.name}.json"
    read["ledger"] = _read(paths["ledger"])
    problems = [problem for item in read.values() for problem in item.problems]

    def document(kind: type[T], name: str) -> T | None:
        if read[name].data is None:
            return None
        try:
            return from_document(kind, read[name].data, str(paths[name]))
        except ApiaryError as refusal:
            problems.extend(refusal.findings)
            return None

    survey, acceptance = document(Survey, "survey"), document(Acceptance, "acceptance")
    ledger = document(Ledger, "ledger")
    last = ledger.entries[-1] if ledger and ledger.entries else None
    made = {
        "survey": survey.collected_at if survey else None,
        "acceptance": acceptance.collected_at if acceptance else None,
        "ledger": (last.ended_at or last.begun_at) if last else None,
    }
    sources = tuple(
        _source(name, paths[name], made.get(name) or _time_of(one.data), now)
        for name, one in read.items()
        if one.data is not None
    )
    return HostInput(
        host.name,
        Place(host.site, host.row, host.rack),
        survey,
        acceptance,
        read["quarantine"].data,
        ledger,
        host.groups,
        sources,
        tuple(problems),
    )


def _read(path: Path) -> Read:
    """Return the JSON object in a file; nothing where there is no file."""
    if not path.is_file():
        return Read()
    try:
        data = json.loads(read_text(str(path)))
    except ApiaryError as refusal:
        return Read(None, refusal.findings)
    except ValueError as failure:
        return Read(None, (_damaged(path, f"is no JSON: {failure}"),))
    if not isinstance(data, dict):
        return Read(None, (_damaged(path, f"holds a {type(data).__name__}, expected an object"),))
    return Read(data)


def _damaged(path: Path, message: str) -> Finding:
    return Finding("FILE-SYNTAX", str(path), message)


def _time_of(data: Mapping[str, Any]) -> str | None:
    matches = [data.get(name) for name in ("at", "updated", "collected_at")]
    return next((str(item) for item in matches if item), None)


def _source(name: str, path: Path, at: str | None, now: datetime.datetime) -> Source:
    age = None
    if at:
        try:
            then = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
        except ValueError:
            then = None
        if then is not None:
            zoned = then if then.tzinfo else then.replace(tzinfo=datetime.UTC)
            # A host whose clock is ahead has documents of the future.
            age = max(0, int((now - zoned).total_seconds()))
    return Source(name, str(path), at, age)
