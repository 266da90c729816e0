# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks left of one host on the controller: its plans, its topology, its system.

Nothing that decides imports this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..documents import from_document
from ..files import read_text
from ..findings import error
from ..plan.check import parse_plan
from ..plan.types import Plan
from ..topology.read import read
from ..topology.types import Topology


def plan_files(directory: Path) -> list[Path]:
    """Return a host's plans: a directory for each deployment; one alone may lie above."""
    return sorted(directory.glob("*/plan.json")) or sorted(directory.glob("plan.json"))


def saved_plans(directory: Path) -> tuple[Plan, ...]:
    """Return a host's plans; raise FILE-UNREADABLE or DOC-…."""
    return tuple(parse_plan(read_text(str(path)), str(path)) for path in plan_files(directory))


def quarantined(directory: Path) -> bool:
    """Say whether a host is kept out; it is watched, and serves nothing."""
    return (directory / "quarantine.json").exists()


def saved_topology(directory: Path) -> Topology | None:
    """Return a host's topology, by itself or of its evidence; None where neither is there."""
    saved, evidence = directory / "topology.json", directory / "evidence.json"
    if saved.is_file():
        return from_document(Topology, _document(saved), str(saved))
    return read(read_text(str(evidence)), str(evidence)) if evidence.is_file() else None


def saved_system(directory: Path) -> str | None:
    """Return a host's system as its survey names it (`ubuntu 24.04`); None without a survey."""
    path = directory / "survey.json"
    system: str | None = _document(path).get("facts", {}).get("os") if path.is_file() else None
    return system


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_text(str(path)))
    except ValueError as failure:
        raise _refusal(path, f"is no JSON: {failure}") from failure
    if not isinstance(document, dict):
        raise _refusal(path, "is no mapping")
    return document


def _refusal(path: Path, found: str) -> Exception:
    return error(
        "DOC-TYPE", str(path), found, field="the file", allowed="a plan, as plan.yml writes"
    )
