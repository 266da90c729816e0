# SPDX-License-Identifier: GPL-3.0-or-later

"""One trial on its host, from its plan to its outcome, or to why the engine failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...module_utils.engine_causes import cause_of
from ..bench.place import Replicas
from ..bench.types import Bench
from ..documents import from_document, knowledge
from ..rollout.progress import failure_of
from . import scores
from .types import Outcome, State

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """How far a trial is; a step that failed leaves its ``message``, and no other one follows.

    ``began`` is the host's time, ``plan`` what it serves, ``bench`` the arguments of its
    measurement, ``starts`` how its units were before that: a difference is an end or a restart.
    """

    stage: Literal["plan", "prepare", "start", "measure"]
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
    host: str, address: str, trial: Result, result: Result, key_file: str | None, began: str
) -> Progress:
    """Return a trial whose plan was made, or whose planning failed."""
    if result.get("failed"):
        return Progress("plan", began, failure_of("", result).message, failed=True)
    name = trial["deployment"]["name"]
    plan = next(one for one in result["plans"] if one["deployment"]["name"] == name)
    bench = bench_of(host, address, trial, plan, key_file)
    return Progress("prepare", began, plan=plan, bench=bench)


def failed(progress: Progress, result: Result) -> Progress:
    """Return a trial of which a step failed."""
    return replace(progress, failed=True, message=failure_of("", result).message)


def serving(progress: Progress, result: Result, starts: str) -> Progress:
    """Return a trial whose replicas were started, or could not be."""
    started = replace(progress, stage="start")
    if result.get("failed"):
        return failed(started, result)
    return replace(started, stage="measure", starts=starts)


def outcome_of(
    progress: Progress, measured: Result, starts: str, journal: str, load_host: str, path: str
) -> Outcome:
    """Return how a trial ended; only what the candidate itself decides is held against it.

    ``starts`` are its units after the measurement, ``journal`` the engines' lines since the trial
    began. Where an engine ended while it was measured, its numbers are of no configuration.
    """
    first = next(iter(progress.message.splitlines()), "")
    if progress.stage in ("plan", "prepare"):  # of this host and what else is on it
        return Outcome("lost", cause=first)
    if progress.failed or progress.stage == "start":
        return Outcome("failed", cause=cause(journal, first))
    if measured.get("unreachable"):
        return Outcome("lost", cause=f"the load host {load_host} could not be reached")
    if starts != progress.starts:
        ended = exited(journal) or "an engine ended while it was measured"
        return Outcome("failed", cause=cause(journal, ended), path=path or None)
    if not measured.get("bench"):
        why = next(iter(failure_of("", measured).message.splitlines()), "")
        return Outcome("invalid", cause=why or "there is no measurement")
    found = scores.outcome_of(from_document(Bench, measured["bench"], path or "bench"), path)
    if found.status == "failed":
        why = known(journal)
        # Engines that live and say nothing: the way to them may be at fault, so it is tried again.
        state: State = "failed" if why else "invalid"
        return replace(found, status=state, cause=f"{why} | {found.cause}" if why else found.cause)
    return found


def bench_of(
    host: str, address: str, trial: Result, plan: Result, key_file: str | None
) -> dict[str, Any]:
    """Return what `bench` is called with for a trial; ``key_file`` is the operator's."""
    deployment, load_host = trial["deployment"], trial["load_host"]
    engine, itself = deployment["engine"], load_host == host
    runtime = engine.get("runtime") or "native"
    contained = runtime != "native" and not trial.get("command")
    # A wildcard address listens on loopback, too.
    address = "127.0.0.1" if itself else address
    urls = Replicas(host, "", {**plan, "deployment": deployment}, address).urls
    key = None
    if "VLLM_API_KEY" in (deployment.get("secrets") or ()):
        key = key_file or f"/etc/apiary/{deployment['name']}/credentials/VLLM_API_KEY"
    return {
        "urls": urls,
        "metrics": [f"{url}/metrics" for url in urls],
        "command": trial.get("command") or [engine["executable"]],
        "image": engine.get("image") if contained else None,
        "container_engine": "podman" if runtime == "quadlet" else "docker",
        "client_cpus": "apart" if itself else None,
        "gpu_metrics": "sysfs" if itself else "none",
        "key_file": key,
        "rules": trial["rules"],
    }


def client_version(bench: Result) -> str | None:
    """Return the version of vLLM's client, of a benchmark: to say it, vLLM loads all of torch."""
    clients = [level.get("client") or {} for level in bench.get("levels") or ()]
    versions = [one["version"] for one in clients if one.get("backend") == "vllm"]
    return versions[0] if versions else None


_FINDING = re.compile(r"^(?:<\d>)?error: (?P<told>[A-Z]+-[A-Z-]+: .*)$")
# systemd's own words.
_EXITED = re.compile(
    r"\S+\.service: (?:Main process exited|A process of this unit has been killed)"
)
_LONGEST = 300


def cause(journal: str, otherwise: str = "") -> str:
    """Return why the engine failed, in one line: the supervisor's finding and the root error.

    ``journal`` is `journalctl -o cat` of the replicas' units. ``otherwise`` is told where it has
    neither.
    """
    return known(journal) or otherwise.strip()[:_LONGEST] or "nothing in its journal says why"


def known(journal: str) -> str:
    """Return the cause that a journal has; empty where it has none."""
    lines = [line.rstrip() for line in journal.splitlines()]
    told = [found["told"] for line in lines if (found := _FINDING.match(line))]
    error = cause_of(lines, knowledge("serving/causes.yml"))
    parts = [told[-1]] if told else []
    # The supervisor has read the same lines by the same rules.
    if error and error.text not in "".join(parts):
        parts.append(str(error))
    return " | ".join(part[: 2 * _LONGEST] for part in parts)


def exited(journal: str) -> str:
    """Return what systemd said last of a process that ended; empty where it said nothing."""
    return next(
        (line[:_LONGEST] for line in reversed(journal.splitlines()) if _EXITED.match(line)), ""
    )
