# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks left of one host on the controller: its plans, its topology, its system.

A plan counts where the host's ledger has its digest: a file that merely lies there is nobody's
decision. Nothing that decides imports this.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from ..documents import dumps, from_document
from ..files import read_text, utc_now, write_text
from ..findings import ApiaryError, Finding, error
from ..plan.types import Plan, parse_plan
from .ledger import Decided, Ledger
from .types import Quarantine, Survey

T = TypeVar("T")
# The fleet's own documents lie beside those of the hosts.
FLEET = "fleet"
# A host retains a few releases, and whoever sets more of them knows why.
_EARLIER = 50


def host_directory(artifacts: Path, host: str) -> Path:
    """Return where a host's documents are; a name that is a path does not lead out of there."""
    name = host.replace("/", "_")
    return artifacts / (name if name.strip(".") else f"_{name}")


def load(cls: type[T], path: Path) -> T | None:
    """Return the document in a file, None where there is none; raise FILE-… or DOC-…."""
    if not path.exists():
        return None
    try:
        data = json.loads(read_text(str(path)))
    except ValueError as failure:
        raise error("FILE-SYNTAX", str(path), f"is no JSON: {failure}") from failure
    return from_document(cls, data, str(path))


def attempt(cls: type[T], path: Path, problems: list[Finding]) -> T | None:
    """Return the document in a file; why there is none although there is a file is a problem."""
    try:
        return load(cls, path)
    except OSError as failure:
        origin = "who runs Apiary has to be let into its directory"
        problem = error(
            "FILE-UNREADABLE", str(path), f"cannot be read: {failure.strerror}", origin=origin
        )
        problems += problem.findings
        return None
    except ApiaryError as refusal:
        problems += refusal.findings
        return None


def load_quarantine(directory: Path, problems: list[Finding]) -> Quarantine | None:
    """Return why a host is kept out, None where it is not; a damaged file keeps it out, too."""
    path = directory / "quarantine.json"
    damage: list[Finding] = []
    kept_out = attempt(Quarantine, path, damage)
    problems += damage
    if damage:
        return Quarantine(directory.name, "", "quarantine.json cannot be read")
    return kept_out


def plan_files(directory: Path) -> list[Path]:
    """Return the files of a host's plans, one a deployment."""
    return sorted(directory.glob("*/plan.json"))


def ledger_path(directory: Path) -> Path:
    """Return the file of a host's ledger; ``directory`` has what else is saved of it."""
    return directory.parent / FLEET / "ledger" / f"{directory.name}.json"


def read_ledger(directory: Path) -> Ledger:
    """Return a host's ledger, an empty one where it has none; raise DOC-…."""
    return load(Ledger, ledger_path(directory)) or Ledger(directory.name)


def save_documents(directory: Path, documents: Mapping[str, str], whole: bool = True) -> None:
    """Write a host's plans and what belongs to them, and record the plans as decided.

    ``documents`` are texts by path. Where they are the ``whole``, what an earlier plan had goes.
    """
    for path in [*(directory / "files").rglob("*"), *directory.glob("*/plan.json")]:
        if whole and path.is_file() and str(path.relative_to(directory)) not in documents:
            path.unlink()
    for name, content in documents.items():
        write_text(directory / name, content)
    plans = {
        path.parent.name: digest(content)
        for path, content in ((Path(name), content) for name, content in documents.items())
        if path.name == "plan.json" and path.parent.name
    }
    _record(directory, plans, whole)


def _record(directory: Path, plans: Mapping[str, str], whole: bool) -> None:
    """Have the ledger name these digests by deployment; what it has already keeps its time."""
    ledger = read_ledger(directory)
    now = utc_now()
    earlier = {item.deployment: item for item in ledger.decided}
    recorded = {} if whole else dict(earlier)
    for name, plan in plans.items():
        item = earlier.get(name)
        if item and item.plan != plan:
            before = (item.plan, *(each for each in item.earlier if each not in (plan, item.plan)))
            item = Decided(name, plan, now, before[:_EARLIER])
        recorded[name] = item or Decided(name, plan, now)
    decided = tuple(recorded[name] for name in sorted(recorded))
    if decided != ledger.decided:
        text = dumps(dataclasses.replace(ledger, decided=decided))
        write_text(ledger_path(directory), text)


def digest(text: str) -> str:
    """Return the sha256 by which a ledger names a plan.json."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def was_decided(directory: Path, deployment: str, text: str) -> bool:
    """Return whether a plan.json is one that this controller decided for the host, at any time."""
    plan = digest(text)
    return any(
        item.deployment == deployment and plan in (item.plan, *item.earlier)
        for item in read_ledger(directory).decided
    )


def saved_plans(directory: Path) -> tuple[tuple[Plan, ...], str | None]:
    """Return a host's plans that this controller decided, and why others are none.

    Raises FILE-UNREADABLE or DOC-….
    """
    texts = {path: read_text(str(path)) for path in plan_files(directory)}
    decided = {item.plan for item in read_ledger(directory).decided}
    plans = tuple(
        parse_plan(text, str(path)) for path, text in texts.items() if digest(text) in decided
    )
    if len(plans) < len(texts):
        path = next(path for path, text in texts.items() if digest(text) not in decided)
        return plans, f"has {path}, which no run of this controller decided"
    return plans, None if plans else f"has no plan below {directory}"


def quarantined(directory: Path) -> bool:
    """Say whether a host is kept out; it is watched, and serves nothing."""
    return (directory / "quarantine.json").exists()


def saved_system(directory: Path) -> str | None:
    """Return a host's system as its survey names it (`ubuntu 24.04`), None without one."""
    survey = attempt(Survey, directory / "survey.json", [])
    return survey.facts.os if survey else None
