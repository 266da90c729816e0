# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch document of one replica, `apiary.launch/v1`, as its supervisor reads it."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from .problems import replica_error

SCHEMA = "apiary.launch/v1"


class Spec(NamedTuple):
    """One replica; the fields are those of render/launch_spec.py, where they are explained."""

    unit: str
    runtime: str
    gpus: tuple[str, ...]
    cpus: str | None
    memory_nodes: tuple[int, ...]
    listen_address: str
    probe_address: str
    port: int
    model_name: str
    weights: str
    secrets: tuple[str, ...]
    after: tuple[str, ...]
    start_timeout_seconds: int
    drain_timeout_seconds: int
    hang_seconds: int
    # Only the first host of a replica over several has an API.
    headless: bool = False
    agent_port: int | None = None


def read_spec(path: str) -> Spec:
    """Return the document in a file; raises REPLICA-SPEC. Fields it doesn't know are ignored."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        if document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')!r}, not {SCHEMA}")
        fields = {name: document[name] for name in Spec._fields if name in document}
        for name in ("gpus", "memory_nodes", "secrets", "after"):
            fields[name] = tuple(fields[name])
        return Spec(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as failure:
        raise replica_error(
            "REPLICA-SPEC",
            f"cannot read {path}: {failure}",
        ) from failure


def read_life(path: str | None = None) -> dict[str, Any]:
    """Return the facts that lie beside this package as life.json (knowledge/serving/life.yml)."""
    path = path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "life.json")
    with open(path, encoding="utf-8") as stream:
        document: dict[str, Any] = json.load(stream)
    return document
