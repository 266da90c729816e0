# SPDX-License-Identifier: GPL-3.0-or-later

"""What adapters are given on the controller: evidence by path or as it is, hosts, models.

Nothing that decides imports this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants

from ..checkpoint import read_checkpoint
from ..deployment import Deployment
from ..documents import from_document, to_document
from ..evidence.types import bounded, check_size
from ..files import read_text, write_text
from ..findings import error
from ..model.types import Architecture
from ..plan.build import architecture_of
from .applying import Pending
from .serving import Fleet


def given_evidence(given: Any) -> tuple[dict[str, Any], str]:
    """Return evidence and its text; given is the document, or the path of a saved one.

    By path a thousand hosts' evidence is on the controller's disk, not in its memory. Raises
    ApiaryError: FILE-UNREADABLE, DOC-TYPE, PROBE-SIZE.
    """
    if isinstance(given, Mapping):
        return dict(given), bounded(given, str(given.get("host"))) + "\n"
    if Path(str(given)).is_file():
        check_size(Path(str(given)).stat().st_size, str(given))
    text = read_text(str(given))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise error(
            "DOC-TYPE",
            str(given),
            "is no evidence",
            field="the file",
            allowed="what evidence_info's result is saved in",
        )
    return document, text


def fleet_of(hostvars: Mapping[str, Any], hosts: Sequence[str]) -> Fleet:
    """Return the hosts of the inventory, with the evidence that `__probed` has of each."""

    def evidence_of(host: str) -> Mapping[str, Any] | None:
        told = (hostvars[host].get("__probed") or {}).get("evidence")
        return given_evidence(told)[0] if told else None

    return Fleet(hostvars, hosts, evidence_of)


def known_architecture(deployment: Deployment, host: str) -> Architecture:
    """Return a deployment's model, by the config.json that it names or by what is known."""
    config = deployment.model.config
    if config:
        return read_checkpoint(config)
    return architecture_of(deployment, host)


def run_directory(host: str) -> Path:
    """Return where a run has a host's documents that are nobody's after it."""
    return Path(constants.DEFAULT_LOCAL_TMP) / "apiary" / host


def leave(host: str, pending: Pending) -> None:
    """Leave what is pending of a host to what comes later in this run."""
    text = json.dumps(to_document(pending))
    write_text(run_directory(host) / "pending.json", text, 0o600)


def pending(host: str) -> Pending | None:
    """Return what a survey of this run left of a host."""
    path = run_directory(host) / "pending.json"
    if not path.exists():
        return None
    return from_document(Pending, json.loads(read_text(str(path))), host)
