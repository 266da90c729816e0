# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Begin a tuning or go on with one: the adapter from Ansible to plugin_utils.tune."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from ansible.utils.display import Display

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.bench import workloads
from ..plugin_utils.bench.comparison.statistics import functions
from ..plugin_utils.deployment import Deployment
from ..plugin_utils.documents import dumps, from_document, to_document
from ..plugin_utils.files import read_text, write_text
from ..plugin_utils.findings import Finding, error
from ..plugin_utils.model.config import read_config
from ..plugin_utils.plan.build import architecture_of
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.plan.together import running_plans
from ..plugin_utils.slo import slo
from ..plugin_utils.topology.types import Topology
from ..plugin_utils.tune import ablate, candidates, knobs, steps
from ..plugin_utils.tune.alike import alike
from ..plugin_utils.tune.summary import summary
from ..plugin_utils.tune.types import Budget, Question, Tune
from .tune_next import LOCK, acquire, read_state

DISPLAY = Display()


def of_hosts(arguments: dict) -> dict:
    """Return the arguments with what hosts have in common, from what tune_host returned of each."""
    hosts = arguments["hosts"]
    first, several = next(iter(hosts.values())), len(hosts) > 1
    return {
        **arguments,
        "hosts": list(hosts),
        "deployment": first["deployment"],
        "running": first["running"],
        "others": first["planned"],
        "engines": {name: one["deployment"]["engine"]["version"] for name, one in hosts.items()},
        "neighbours": {
            name: [*one["running"], *one["planned"]] for name, one in hosts.items() if several
        },
        "measured_by": {**arguments["measured_by"], "load_hosts": list(arguments["load_hosts"])},
    }


def place_of(artifacts: str, name: str, ablate: str) -> Path:
    """Return the file of the state; an ablation is a question of its own, beside a tuning's."""
    part = f"ablate/{name}/{re.sub(r'[^A-Za-z0-9_.=-]', '_', ablate)}" if ablate else f"tune/{name}"
    return Path(artifacts, part, "state.json").absolute()


def no_load_host(requested: Question) -> Finding:
    """Return the warning of hosts that load themselves."""
    return Finding(
        "TRIAL-LOAD-HOST",
        ", ".join(requested.hosts),
        "loads itself, for the group load_generators is empty; a level whose client shows in the"
        " numbers is not counted",
    )


def question(arguments: dict) -> Question:
    """Return what is requested, read from the texts that an operator gives."""
    deployment = from_document(Deployment, arguments["deployment"], "tune_deployment")
    if getattr(deployment.layout, "nodes", 1) > 1:
        raise error(
            "TRIAL-NODES",
            deployment.name,
            "its replicas span several hosts, and layouts are compared on one",
        )
    layouts, requested_knobs = knobs.read(arguments["knobs"])
    requested = Question(
        deployment=deployment,
        workload=workloads.workload(arguments["workload"]),
        slo=slo(arguments["slo"]) if arguments["slo"] else (),
        layouts=layouts,
        knobs=requested_knobs,
        budget=from_document(Budget, arguments["budget"], "tune_budget"),
        seed=arguments["seed"],
        hosts=(*arguments["hosts"], *arguments["gone"]),
        measured_by=json.loads(json.dumps(arguments["measured_by"])),  # as the state has it
        **({"concurrency": arguments["concurrency"]} if arguments["concurrency"] else {}),
    )
    if not arguments["ablate"]:
        return requested
    if requested_knobs is not None or layouts is not None:
        raise error(
            "TRIAL-KNOB", "tune_ablate", "it changes one flag, and tune_knobs would change others"
        )
    return ablate.question(requested, arguments["ablate"])


def begun(requested: Question, arguments: dict) -> Tune:
    """Return a new tuning, with what the hosts have by now."""
    topologies = arguments["topologies"]
    first = from_document(Topology, topologies[requested.hosts[0]], requested.hosts[0])
    config = requested.deployment.model.config
    architecture = (
        read_config(read_text(config), config)
        if config
        else architecture_of(requested.deployment, requested.deployment.name)
    )
    running, unread = running_plans(arguments["running"], requested.hosts[0])
    others = (*running, *(plan_of(one, "others") for one in arguments["others"]))
    findings = steps.gone(arguments["gone"])
    if len(arguments["hosts"]) > 1:
        neighbours = arguments["neighbours"]
        findings += alike(arguments["evidence"], arguments["engines"], neighbours)
    return steps.begin(requested, architecture, first, others, (*unread, *findings))


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


def set_aside(directory: Path) -> None:
    """Move what an earlier tuning left into a directory of its own: its raw results stay."""
    left = [one for one in directory.glob("*") if one.name not in ("earlier", LOCK)]
    if left:
        place = directory / "earlier" / str(len(list(directory.glob("earlier/*"))) + 1)
        place.mkdir(parents=True)
        for one in left:
            one.rename(place / one.name)


class ActionModule(Deciding):
    """The tune_begin action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return what will be tried; write the state unless in check mode."""
        arguments = of_hosts(arguments)
        load_hosts = arguments["load_hosts"]
        lost = [name for name, answer in load_hosts.items() if answer.get("unreachable")]
        functions()  # what compares repeats; better refused before the first trial
        requested = question(arguments)
        path = place_of(arguments["artifacts"], requested.deployment.name, arguments["ablate"])
        if not self._task.check_mode:
            acquire(path, arguments["take_over"])
        if path.is_file() and not arguments["restart"]:
            before = same(read_state(str(path)), requested, str(path))
            state = steps.without(before, arguments["gone"])
        else:
            before, state = None, begun(requested, arguments)
        most = 0 if state.choice is not None else steps.most(state, len(requested.hosts))
        if most and lost and len(lost) == len(load_hosts):
            raise error(
                "TRIAL-LOAD-LOST",
                ", ".join(lost),
                "could not be reached, and no other host is in load_generators",
            )
        if state != before and not self._task.check_mode:
            if before is None:
                # Its results are of other questions, under the same names.
                set_aside(path.parent)
            write_text(path, dumps(state))
        notes = () if load_hosts else (no_load_host(requested),)
        for finding in (*notes, *state.findings):
            if finding.severity != "info":
                DISPLAY.warning(str(finding))
        lines = summary(state)
        for line in lines:
            DISPLAY.display(f"  {line}")
        return {
            "deployment": requested.deployment.name,
            "done": state.choice is not None,
            "most": most,
            "state": str(path),
            "lost_load_hosts": lost,
            "findings": to_document(state.findings),
            "summary": list(lines),
        }
