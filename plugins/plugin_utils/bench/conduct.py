# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole benchmark for the adapters: looks, measures, keeps what it measured in a directory.

Nothing that decides imports this.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import (
    drive,
    rules,
    validity,
    workloads,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.preflight import Seen
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.session import Session, Unable
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.store import RawStore
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Asked, Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error

COLLECTION = Path(__file__).parents[3]
Show = Callable[[drive.Progress], None]


@dataclass(frozen=True)
class Order:
    """What is asked for and where it goes; ``rules`` replace some of the protocol's numbers."""

    name: str
    asked: Asked
    directory: Path
    environment: Mapping[str, Any]
    rules: Mapping[str, Any]


def asked_of(given: Mapping[str, Any], workload: str | None, slo: str, subject: str) -> Asked:
    """Return what is asked for, by a person's words and by fields of Asked.

    Raises ApiaryError (BENCH-WORKLOAD, BENCH-SLO, DOC-…); ``subject`` names where it stands.
    """
    fields = dict(given)
    fields.pop("schema", None)
    if workload:
        fields["workload"] = to_document(workloads.workload(workload))
    elif isinstance(fields.get("workload"), str):
        fields["workload"] = to_document(workloads.workload(fields["workload"]))
    if slo:
        fields["slo"] = to_document(workloads.slo(slo))
    fields["stress"] = [
        to_document(workloads.workload(one)) if isinstance(one, str) else one
        for one in fields.get("stress") or ()
    ]
    return from_document(Asked, fields, subject)


def conduct(order: Order, session: Session, show: Show | None = None) -> Bench:
    """Measure all that is asked for; write bench.json and each raw result; return the Bench.

    Raises ApiaryError, and NextLife where somebody else must restart the engines. What was
    measured by then is kept, and replayed when the same is asked of the same directory.
    """
    seen = session.begin()
    created = _claim(order, session)
    try:
        bench = _drive(order, session, show, created, seen)
    except Unable as stopped:
        raise stopped.refusal from None
    extra = tuple(one for one in session.findings if one not in bench.findings)
    bench = dataclasses.replace(bench, findings=_sorted((*bench.findings, *extra)))
    write_text(order.directory / "bench.json", dumps(bench))
    return bench


def _drive(order: Order, session: Session, show: Show | None, created: str, seen: Seen) -> Bench:
    return drive.drive(
        order.asked,
        session.run,
        RawStore(order.directory / "raw"),
        show,
        name=order.name,
        created=created,
        target=session.target,
        judge=validity.judge,
        environment=environment_of(order, session, seen),
        rules=rules.rules(**order.rules),
        pause=time.sleep if order.asked.paper else None,
    )


def environment_of(order: Order, session: Session, seen: Seen) -> dict[str, Any]:
    """Return everything around the numbers that is needed to get them again."""
    client = session.client
    return {
        "apiary": collection_version(),
        "engine": {"name": "vllm", "version": seen.version, "image": client.image},
        "kernel": seen.host["kernel"],
        "numa_balancing": seen.host["numa_balancing"],
        "model": session.target.model,
        "client": {
            "backend": client.backend,
            "version": client.version,
            "host": seen.host["name"],
            "cores": client.cores,
            "cpus": list(client.cpus),
            "load_before": seen.host["load"],
        },
        **order.environment,
    }


def collection_version() -> str | None:
    """Return the version of this collection, installed by Galaxy or not."""
    for name, load in (("MANIFEST.json", json.loads), ("galaxy.yml", yaml.safe_load)):
        try:
            told = load((COLLECTION / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        return str(told.get("collection_info", told).get("version"))
    return None


def _claim(order: Order, session: Session) -> str:
    """Say of what the directory is, or see that it is of the same; return when it was begun.

    Raises BENCH-OTHER where raw results of another target or client lie there.
    """
    path = order.directory / "target.json"
    target = session.target
    own = {
        "urls": list(target.urls),
        "metrics": list(target.metrics),
        "model": target.model,
        "tokenizer": target.tokenizer,
        "backend": session.client.backend,
        "version": session.client.version,
    }
    if path.exists():
        try:
            told = json.loads(read_text(str(path)))
            created, other = str(told.pop("created")), told
        except (ValueError, KeyError, AttributeError):
            created, other = "", {}
        if other != own:
            differs = ", ".join(sorted(name for name in own if own[name] != other.get(name)))
            raise error(
                "BENCH-OTHER",
                str(order.directory),
                f"has results of another benchmark: its {differs} is another",
                "give another directory, or remove that one",
            )
        return created
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_text(path, dumps({**own, "created": created}))
    return created


def _sorted(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings with errors first, each kind in its order."""
    order = ("error", "warning", "info")
    return tuple(one for severity in order for one in findings if one.severity == severity)
