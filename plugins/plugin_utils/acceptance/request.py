# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what a host is to be measured for, and what would disturb those who use it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils.replicas.smoke import certificate
from ..documents import knowledge
from ..evidence.types import Evidence
from ..findings import Finding
from ..host.facts import command, serving_replicas
from ..render.unit import directory
from ..topology.types import Topology
from .replicas import plans
from .types import Requested, Settings, Test

_WEIGHTS = "/etc/apiary/weights.json"


def request(evidence: Evidence, topology: Topology | None, settings: Settings) -> Requested:
    """Return what to measure on a host: its replicas always, the rest where it is asked for.

    GPU programs are refused while anything serves on the host, reading unless it is allowed.
    ``topology`` is None where the evidence makes none; then no GPU program can be started.
    """
    serving = serving_replicas(evidence)
    refused: list[Finding] = []
    runs: tuple[dict[str, Any], ...] = ()
    if settings.tests and serving:
        refused.append(_busy(evidence.host, ", ".join(settings.tests), serving))
    elif settings.tests and topology is not None:
        runs = tuple(run for test in settings.tests for run in _runs(test, topology))
    reading = None
    if settings.nfs_throughput and serving and not settings.nfs_while_serving:
        refused.append(_busy(evidence.host, "nfs", serving))
    elif settings.nfs_throughput:
        reading = _reading(evidence)
    return Requested(
        tuple(_health(evidence)),
        reading,
        runs,
        settings.tests_seconds,
        knowledge("host/workloads.yml")["vram"]["bytes"],
        tuple(refused),
    )


def _busy(host: str, what: str, serving: tuple[str, ...]) -> Finding:
    allow = ", or set acceptance_nfs_while_serving" if what == "nfs" else ""
    return Finding(
        "ACCEPT-BUSY",
        f"{host}: {what}",
        f"was asked for and not run: {', '.join(serving[:4])} would be disturbed",
        allow=allow,
    )


def _health(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Yield the replicas that run and listen; the others fail without being asked."""
    serving = serving_replicas(evidence)
    output = command(evidence, "listening")
    ports = set(re.findall(r":(\d+)\s", output.stdout)) if output else set()
    for plan in plans(evidence):
        if plan.node is not None and plan.node.rank > 0:
            continue  # workers serve no HTTP
        for replica in plan.replicas:
            if replica.unit in serving and str(replica.port) in ports:
                address = _address(replica.argv)
                secret = f"{directory(plan)}/credentials/{certificate(plan.deployment.name)}"
                authority = {"authority": secret} if plan.deployment.tls else {}
                place = {"port": replica.port, "address": address}
                yield {"unit": replica.unit, **place, **authority}


def _address(argv: tuple[str, ...]) -> str:
    """Return the address that a command listens on; a wildcard answers on loopback as well."""
    address = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "--host"), "")
    return address if address not in ("", "0.0.0.0", "::", "*") else "127.0.0.1"  # noqa: S104 - is compared


def _reading(evidence: Evidence) -> dict[str, Any] | None:
    """Return the read of this host's model directories; None where no weights are mounted."""
    try:
        document = json.loads(evidence.files.get(_WEIGHTS, "{}"))
    except ValueError:
        document = {}
    mounts = [str(mount["path"]) for mount in document.get("mounts", ()) if "path" in mount]
    below = tuple(f"{path.rstrip('/')}/" for path in mounts)
    models = [path for path in map(str, document.get("models", ())) if f"{path}/".startswith(below)]
    facts = knowledge("acceptance/nfs.yml")["throughput"]
    if not mounts:
        return None
    limits = {name: facts[name] for name in ("bytes", "readers", "block_bytes")}
    return {"paths": models or mounts, "seconds": float(facts["seconds"]), **limits}


def _runs(test: Test, topology: Topology) -> Iterator[dict[str, Any]]:
    facts: Mapping[str, Any] = knowledge("acceptance/tests.yml")[test]
    models = sorted({gpu.model for gpu in topology.gpus if gpu.model})
    words = {
        "gpus": str(sum(gpu.healthy is not False for gpu in topology.gpus)),
        "model": models[0] if len(models) == 1 else "none",
        "conf": facts.get("conf", ""),
    }
    for run in facts["runs"]:
        attempts = [
            {
                "argv": [word.format(**words) for word in attempt["argv"]],
                "needs": attempt["needs"].format(**words) if "needs" in attempt else None,
            }
            for attempt in run["attempts"]
        ]
        yield {"test": test, "name": run["name"], "attempts": attempts}
