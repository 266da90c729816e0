# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch document of one replica, `apiary.launch/v1`, and what ends a start."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from ....module_utils.finding import ApiaryError, error


@dataclass(frozen=True)
class LaunchSpec:
    """One replica as its supervisor needs it; the engine's command stands in the unit.

    ``weights`` is the model's directory, ``probe_address`` where the supervisor asks its engine,
    ``secrets`` the credentials that become variables of the engine. ``after`` are units of the
    same host that shall have read the weights first. An engine that makes no token for
    ``hang_seconds`` while it has requests hangs. A ``headless`` one is a further host of a replica:
    its API is the first host's, at ``probe_address``. Times are in seconds.
    At ``agent_port`` routers ask whether it takes requests; None where none can.
    """

    SCHEMA: ClassVar[str] = "apiary.launch/v1"

    unit: str
    deployment: str
    replica: int
    runtime: Literal["native", "quadlet", "docker"]
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
    headless: bool = False
    agent_port: int | None = None


def read_spec(path: str) -> LaunchSpec:
    """Return the document in a file; raises REPLICA-SPEC. Fields it doesn't know are ignored."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        if document.get("schema") != LaunchSpec.SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')!r}, not {LaunchSpec.SCHEMA}")
        values = {
            item.name: document[item.name] for item in fields(LaunchSpec) if item.name in document
        }
        for name in ("gpus", "memory_nodes", "secrets", "after"):
            values[name] = tuple(values[name])
        return LaunchSpec(**values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as failure:
        raise replica_error("REPLICA-SPEC", f"cannot read {path}: {failure}") from failure


def read_life(path: str | None = None) -> dict[str, Any]:
    """Return the facts that lie beside this package as life.json (knowledge/serving/life.yml)."""
    path = path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "life.json")
    with open(path, encoding="utf-8") as stream:
        document: dict[str, Any] = json.load(stream)
    return document


def replica_error(code: str, message: str, minor: bool = False, **values: str) -> ApiaryError:
    """Return why a start must not happen, or an engine must not go on.

    Its subject is the unit, which whoever prints it knows.
    """
    return error(code, "replica", message, minor=minor, **values)


class StoppedError(Exception):
    """The service manager wants the replica down."""
