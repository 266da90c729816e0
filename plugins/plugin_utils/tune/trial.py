# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One trial on its host, step by step: what is measured, and what its steps show of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .ending import Stage, Told

Result = Mapping[str, Any]
_EVERYWHERE = ("0.0.0.0", "::", "*")  # noqa: S104 - addresses to compare with


@dataclass(frozen=True)
class Progress:
    """How far a trial is; a step that failed leaves its ``message``, and no other one follows.

    ``began`` is the host's time, ``plan`` what it serves, ``bench`` the arguments of its
    measurement, ``starts`` how its units were before that.
    """

    stage: Stage
    began: str
    message: str = ""
    failed: bool = False
    plan: dict[str, Any] = field(default_factory=dict)
    bench: dict[str, Any] = field(default_factory=dict)
    starts: str = ""

    @property
    def units(self) -> list[str]:
        """Return the units of its replicas."""
        return [str(one["unit"]) for one in self.plan.get("replicas") or ()]


def planned(
    host: str, address: str, trial: Result, result: Result, options: Result, began: str
) -> Progress:
    """Return a trial whose plan was made, or whose planning failed."""
    if result.get("failed"):
        return Progress("plan", began, message_of(result), failed=True)
    name = trial["deployment"]["name"]
    plan = next(one for one in result["plans"] if one["deployment"]["name"] == name)
    bench = bench_of(host, address, trial, plan, options)
    return Progress("prepare", began, plan=plan, bench=bench)


def failed(progress: Progress, result: Result) -> Progress:
    """Return a trial of which a step failed."""
    return replace(progress, failed=True, message=message_of(result))


def serving(progress: Progress, result: Result, starts: str) -> Progress:
    """Return a trial whose replicas were started, or could not be."""
    started = replace(progress, stage="start")
    if result.get("failed"):
        return failed(started, result)
    return replace(started, stage="measure", starts=starts)


def message_of(result: Result) -> str:
    """Return why a task failed, in its own words; of a loop, its first failed round's."""
    rounds = [one for one in result.get("results") or () if one.get("failed")]
    first = rounds[0] if rounds else result
    return str(first.get("msg") or first)


def ended(
    progress: Progress, measured: Result, starts: str, journal: str, load_host: str, path: str
) -> Told:
    """Return what is known of a trial when all of its steps are over."""
    if progress.failed or progress.stage != "measure":
        return Told(progress.stage, progress.message, journal)
    if measured.get("unreachable"):
        return Told("load", f"the load host {load_host} could not be reached", journal)
    bench = measured.get("bench")
    return Told(
        "measure",
        "" if bench else message_of(measured),
        journal,
        bench,
        path if bench else None,
        engine_runs_before=progress.starts,
        engine_runs_after=starts,
    )


def bench_of(
    host: str, address: str, trial: Result, plan: Result, options: Result
) -> dict[str, Any]:
    """Return what `bench` is called with for a trial; ``options`` are tune_* of the operator."""
    deployment, load_host = trial["deployment"], trial["load_host"]
    engine, listens = deployment["engine"], deployment["listen_address"]
    itself = load_host == host
    runtime = engine.get("runtime") or "native"
    contained = runtime != "native" and not options.get("command")
    if itself:
        # A wildcard address listens on loopback, too.
        address = "127.0.0.1" if listens in _EVERYWHERE else listens
    urls = [f"http://{address}:{one['port']}" for one in plan["replicas"]]
    key = None
    if "VLLM_API_KEY" in (deployment.get("secrets") or ()):
        own = f"/etc/apiary/{deployment['name']}/credentials/VLLM_API_KEY"
        key = options.get("key_file") or own
    return {
        "urls": urls,
        "metrics": [f"{url}/metrics" for url in urls],
        "command": options.get("command") or [engine["executable"]],
        "image": engine.get("image") if contained else None,
        "container_engine": "podman" if runtime == "quadlet" else "docker",
        "client_cpus": "apart" if itself else None,
        "gpu_metrics": "sysfs" if itself else "none",
        "key_file": key,
        "rules": {**trial["rules"], **(options.get("rules") or {})},
    }


def client_versions(assigned: Result, told: Result, before: Result) -> dict[str, str]:
    """Return the version of vLLM's client on each load host: to say it, vLLM loads all of torch."""
    versions: dict[str, str] = dict(before)
    for host, item in assigned.items():
        bench = (told.get(host) or {}).get("bench") or {}
        clients = [level.get("client") or {} for level in bench.get("levels") or ()]
        own = [one["version"] for one in clients if one.get("backend") == "vllm"]
        if own and own[0]:
            versions.setdefault(item["load_host"], own[0])
    return versions


def numbered(host: str, units: Sequence[str]) -> list[str]:
    """Return units as routers name their servers: by host and number."""
    return [f"{host}-{unit.removesuffix('.service').rpartition('-')[2]}" for unit in units]
