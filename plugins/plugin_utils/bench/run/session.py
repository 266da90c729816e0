# SPDX-License-Identifier: GPL-3.0-or-later

"""One benchmark on its load host: each Load becomes a Raw, and engines are new in each run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ...documents import from_document, to_document
from ...findings import ApiaryError, Finding, error
from ..types import Load, Raw, SelfTest, Target, Workload
from ..validity.evaluate import self_test_holds
from . import preflight
from .drive import Unable
from .level import Client, crowded, free_cpus, inspection_of, request_of, unsendable

Execute = Callable[[dict[str, Any]], dict[str, Any]]


# bench_processes.TIMED_OUT, as timeout(1) has it.
TIMED_OUT = 124


class NextEngineRun(Exception):  # noqa: N818 - nothing is wrong
    """The engines must be restarted before the next level can be measured."""

    def __init__(self, engine_run: int) -> None:
        super().__init__(f"engine run {engine_run}")
        self.engine_run = engine_run


def no_restart(engine_run: int) -> None:
    """Leave it to whoever called to restart the engines."""
    raise NextEngineRun(engine_run)


@dataclass
class Session:
    """Runs levels: ``execute`` hands a request to bench_run on the load host.

    ``engine_run`` is the engines' present one; ``restart`` makes the next, or raises NextEngineRun.
    """

    target: Target
    client: Client
    execute: Execute
    restart: Callable[[int], None] = no_restart
    engine_run: int = 0
    findings: list[Finding] = field(default_factory=list)
    _before: Raw | None = None
    _tested: dict[tuple[Any, ...], SelfTest] = field(default_factory=dict)

    def begin(self) -> preflight.Seen:
        """Look at servers and client, and take over what they say of themselves.

        Raises ApiaryError with each thing that keeps a benchmark from beginning.
        """
        inspection = self.execute(inspection_of(self.target, self.client))
        seen = preflight.evaluate_inspection(
            inspection, self.target.model, self.client.backend, self.client.version
        )
        self.findings += seen.findings
        self.target = replace(self.target, model=seen.model)
        known = self.client.version or seen.client_version or seen.version
        self.client = replace(self.client, version=known, cores=int(seen.host["cores"]))
        unsendable(Load("fixed", Workload("any", 1, 1), 1, 1), self.client)  # refuses old ones
        if self.client.apart_from is not None:
            self._keep_apart(self.client.apart_from, seen.host["numa_cpus"])
        return seen

    def run(self, load: Load) -> Raw:
        """Measure one load.

        Raises ApiaryError with BENCH-TIMEOUT where it took too long, and with BENCH-UNREACHABLE
        where nothing was measured because an engine is gone; Unable with BENCH-RUN where nothing
        was though they answer, and with what ``execute`` and ``restart`` refuse.
        """
        self.ready(load)
        self._note_client(load)
        size = (load.concurrency, load.request_rate, to_document(load.workload)["name"])
        known = self._tested.get(size)
        client = replace(self.client, self_test=self.client.self_test and known is None)
        request = request_of(load, self.target, client, self._before)
        try:
            data = self.execute(request)
        except ApiaryError as refusal:
            raise Unable(refusal) from refusal
        raw = from_document(Raw, data, load.key)
        if TIMED_OUT in raw.exit_codes:
            raise _late(load, raw)
        if not any(raw.shards):
            gone = self._gone()
            raise ApiaryError(*gone) if gone else Unable(_failed(load, raw))
        if raw.self_test is not None:
            # One that failed in a busy moment is no verdict on the levels after it.
            if self_test_holds(raw):
                self._tested[size] = raw.self_test
        elif known is not None:
            raw = replace(raw, self_test=known)
        self._before = raw
        return raw

    def ready(self, load: Load) -> None:
        """Restart the engines where a load is of a further run; raise Unable, or NextEngineRun."""
        if load.engine_run <= self.engine_run:
            return
        try:
            self.restart(load.engine_run)
        except ApiaryError as refusal:
            raise Unable(refusal) from refusal
        self.engine_run = load.engine_run
        self._before = None

    def _gone(self) -> tuple[Finding, ...]:
        """Return which engines do not answer now; raises Unable where that cannot be asked."""
        try:
            inspection = self.execute(
                {**inspection_of(self.target, self.client), "client": [], "metrics": []}
            )
            preflight.evaluate_inspection(inspection, self.target.model, "builtin")
        except ApiaryError as refusal:
            gone = tuple(one for one in refusal.findings if one.code == "BENCH-UNREACHABLE")
            if not gone:
                raise Unable(refusal) from refusal
            return gone
        return ()

    def _keep_apart(self, busy: tuple[int, ...], nodes: dict[str, str]) -> None:
        """Keep the client to NUMA nodes without replicas; say so where there is none."""
        cpus = free_cpus(nodes, busy)
        if cpus:
            self.client = replace(self.client, cpus=cpus, cores=len(cpus))
            return
        shared = "has no NUMA node without a replica, so client and engines share CPUs"
        self._note("BENCH-NUMA", "the load host", shared)

    def _note_client(self, load: Load) -> None:
        """Note that another client than requested sends a load, or that it has too few cores."""
        why = unsendable(load, self.client)
        if why:
            subject = f"workload {load.workload.name}"
            self._note("BENCH-BUILTIN", subject, f"{why}; the builtin client sends it")
        if crowded(load, self.client.cores):
            self._note(
                "BENCH-CORES",
                "the load host",
                f"has {self.client.cores} cores, fewer than the client processes that "
                f"{load.key} needs; the self-test tells whether that shows in the numbers",
            )

    def _note(self, code: str, subject: str, message: str) -> None:
        """Add a finding, of each subject the first one."""
        if not any((one.code, one.subject) == (code, subject) for one in self.findings):
            self.findings.append(Finding(code, subject, message))


def _late(load: Load, raw: Raw) -> ApiaryError:
    return error(
        "BENCH-TIMEOUT",
        load.key,
        f"was not done within {raw.seconds:.0f} s, so engines or client hang",
    )


def _failed(load: Load, raw: Raw) -> ApiaryError:
    """Return the refusal of a level of which nothing at all was measured, in the client's words."""
    lines = [line for line in raw.log.splitlines() if line.strip() and not line.startswith("== ")]
    last = " | ".join(lines[-3:]) or "it said nothing"
    codes = ", ".join(map(str, sorted(set(raw.exit_codes))))
    return error(
        "BENCH-RUN",
        load.key,
        f"the load generator measured nothing, exit {codes or 'unknown'}: {last[:500]}",
    )
