# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator requests of a tuning, and whether an earlier run's state answers it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ..bench import workloads
from ..checkpoint import read_checkpoint
from ..deployment import Deployment
from ..documents import from_document, to_document
from ..findings import Finding, error
from ..plan.build import architecture_of
from ..plan.together import running_plans
from ..plan.types import plan_of
from ..slo import slo
from ..topology.types import Topology
from . import candidates, knobs, steps
from .alike import alike
from .types import Budget, Question, Tune

Arguments = Mapping[str, Any]
# What step `host` returned, by the hosts' names.
Hosts = Mapping[str, Mapping[str, Any]]


def no_load_host(requested: Question) -> Finding:
    """Return the warning of hosts that load themselves."""
    return Finding(
        "TRIAL-LOAD-HOST",
        ", ".join(requested.hosts),
        "loads itself, for the group load_generators is empty; a level whose client shows in the"
        " numbers is not counted",
    )


def question(arguments: Arguments, hosts: Hosts, gone: list[str]) -> Question:
    """Return what is requested, read from the texts that an operator gives.

    The first of the hosts decides what is possible; ``gone`` are those that can't be reached.
    """
    first = next(iter(hosts.values()))
    deployment = from_document(Deployment, first["deployment"], "tune_deployment")
    if getattr(deployment.layout, "nodes", 1) > 1:
        raise error(
            "TRIAL-NODES",
            deployment.name,
            "its replicas span several hosts, and layouts are compared on one",
        )
    layouts, requested_knobs = knobs.read(arguments["knobs"])
    return Question(
        deployment=deployment,
        workload=workloads.workload(arguments["workload"]),
        slo=slo(arguments["slo"]) if arguments["slo"] else (),
        layouts=layouts,
        knobs=requested_knobs,
        budget=from_document(Budget, arguments["budget"], "tune_budget"),
        seed=arguments["seed"],
        hosts=(*hosts, *gone),
        measured_by=json.loads(json.dumps(arguments["measured_by"])),  # as the state has it
        **({"concurrency": arguments["concurrency"]} if arguments["concurrency"] else {}),
    )


def begun(requested: Question, hosts: Hosts, gone: list[str]) -> Tune:
    """Return a new tuning, with what the hosts have by now."""
    name, first = next(iter(hosts.items()))
    config = requested.deployment.model.config
    architecture = (
        read_checkpoint(config)
        if config
        else architecture_of(requested.deployment, requested.deployment.name)
    )
    running, unread = running_plans(first["running"], name)
    others = (*running, *(plan_of(one, "others") for one in first["planned"]))
    findings = (*unread, *steps.gone(gone), *_unlike(hosts))
    topology = from_document(Topology, first["topology"], name)
    return steps.begin(requested, architecture, topology, others, findings)


def _unlike(hosts: Hosts) -> tuple[Finding, ...]:
    """Return in what hosts differ from the first one."""
    return alike(
        {name: host["evidence"] for name, host in hosts.items()},
        {name: host["deployment"]["engine"]["version"] for name, host in hosts.items()},
        {name: [*host["running"], *host["planned"]] for name, host in hosts.items()},
    )


def same(state: Tune, requested: Question, path: str) -> Tune:
    """Return the state of an earlier run; refuse one of another question with TRIAL-STATE."""
    chosen = state.choice.candidate if state.choice else None
    if chosen and requested.deployment == candidates.deployment_of(state, chosen):
        # The winner was written down, and is what is deployed now.
        requested = dataclasses.replace(requested, deployment=state.requested.deployment)
    if set(requested.hosts) <= set(state.requested.hosts):
        # A host that is gone need not be there to go on.
        requested = dataclasses.replace(requested, hosts=state.requested.hosts)
    if state.requested != requested:
        before, now = to_document(state.requested), to_document(requested)
        other = sorted(name for name in now if before[name] != now[name])
        raise error(
            "TRIAL-STATE", path, f"an earlier run asked something else: {', '.join(other)} differ"
        )
    return state
