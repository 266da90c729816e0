# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tuning, step by step: the adapter from Ansible to plugin_utils.tune.

Its state is a file on the controller; what a step needs of earlier ones is what playbooks register.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path

import yaml
from ansible.utils.display import Display

from ..plugin_utils.adapters import (
    Deciding,
    completed,
    gathered,
    module_result,
    warn,
    with_certificates,
)
from ..plugin_utils.bench.comparison.statistics import functions
from ..plugin_utils.documents import dumps, from_document, to_document
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import error
from ..plugin_utils.fleet.given import given_evidence
from ..plugin_utils.fleet.names import address_of
from ..plugin_utils.host.role_options import options_of, read_role
from ..plugin_utils.plan.types import plan_of
from ..plugin_utils.render.replicas import decide
from ..plugin_utils.rollout.events import server_of
from ..plugin_utils.run_owner import is_dead, owner, show_alive
from ..plugin_utils.tune import candidates, request, saved, steps, trial
from ..plugin_utils.tune.host import TUNING, prepare, scope
from ..plugin_utils.tune.summary import routers_limits, shown, summary, variables_of, winner_of

DISPLAY = Display()
# What playbooks register: of the steps host, begin, next, and of those of a trial.
HOST = "__taken"
BEGUN = "__queue"
NEXT = "__next"
TRIAL = "__trial"
# One that died has its old InvocationID until it is started anew.
_STARTS = ("systemctl", "show", "--property=InvocationID,MainPID,ActiveState,NRestarts")
# On a terminal, as over SSH, it would colour errors by their priority.
_JOURNAL = ("env", "SYSTEMD_COLORS=0", "journalctl", "--no-pager", "--output=cat", "--lines=2000")


class ActionModule(Deciding):
    """The tune action."""

    def decide(self, arguments, task_vars):
        """Do one step of a tuning."""
        does = {
            "host": self._host,
            "begin": self._begin,
            "next": self._next,
            "planned": self._planned,
            "failed": self._failed,
            "serve": self._serve,
            "ended": self._ended,
            "choose": self._choose,
        }
        return does[arguments["step"]](arguments, task_vars)

    def _host(self, arguments: dict, variables: dict) -> dict:
        """Return what is tuned, and what is to be done before and after; refuse a busy host."""
        host, decided = variables["inventory_hostname"], arguments["decided"]
        load = arguments["slo"] or arguments["concurrency"]
        evidence, _text = given_evidence(arguments["evidence"])
        names = (arguments["deployment"], arguments["workload"], load)
        own = scope(host, decided["plans"], evidence, *names)
        name = own.deployment["name"]
        info = module_result(self, "rollout_info", {"deployment": name}, variables)
        holder = (info.get("lock") or {}).get("owner")
        ready = prepare(
            host,
            name,
            info,
            _servers(host, info, arguments["results"]),
            dead=bool(holder) and is_dead(holder.removeprefix(TUNING), arguments["artifacts"]),
            # Check mode shows what would be tried all the same, and warns.
            serving=arguments["serving"] or self._task.check_mode,
            take_over=arguments["take_over"],
        )
        warn(ready.findings)
        several = len(variables["ansible_play_hosts"]) > 1
        unlike = gathered(self, ["gpu", "tuning"], variables) if several else None
        return {
            **to_document(own),
            "ready": to_document(ready),
            "drain": [server_of(host, unit) for unit in ready.drain],
            "out": [server_of(host, unit) for unit in ready.out],
            "owner": TUNING + owner(),
            "held_by": holder,
            "topology": decided["topology"],
            "evidence": to_document(unlike),
        }

    def _begin(self, arguments: dict, variables: dict) -> dict:
        """Return what will be tried; write the state unless in check mode."""
        every = variables["hostvars"]
        hosts = {name: every[name][HOST] for name in variables["ansible_play_hosts"]}
        gone = list(variables["groups"].get("tune_gone", ()))
        load_hosts = {answer["item"]: answer for answer in arguments["results"]}
        lost = [name for name, answer in load_hosts.items() if answer.get("unreachable")]
        functions()  # what compares repeats; better refused before the first trial
        measured_by = {**arguments["measured_by"], "load_hosts": list(load_hosts)}
        requested = request.question({**arguments, "measured_by": measured_by}, hosts, gone)
        name = requested.deployment.name
        path = saved.place_of(arguments["artifacts"], name)
        if not self._task.check_mode:
            saved.acquire(path, arguments["take_over"])
            show_alive(arguments["artifacts"])
        before = None
        if path.is_file() and not arguments["restart"]:
            before = request.same(saved.read_state(path), requested, str(path))
            state = steps.without(before, gone)
        else:
            state = request.begun(requested, hosts, gone)
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
                saved.set_aside(path.parent)
            write_text(path, dumps(state))
        notes = () if load_hosts else (request.no_load_host(requested),)
        for finding in (*notes, *state.findings):
            if finding.severity != "info":
                DISPLAY.warning(str(finding))
        return {
            "deployment": name,
            "most": most,
            "state": str(path),
            "assigned": {},
            "lost_load_hosts": lost,
            "clients": {},
            "findings": to_document(state.findings),
            "summary": _show(summary(state)),
        }

    def _next(self, _arguments: dict, variables: dict) -> dict:
        """Record the trials that ended, save that, and return the next ones."""
        before = variables.get(NEXT) or variables[BEGUN]
        path, assigned = Path(before["state"]), before["assigned"]
        reached = [name for name in variables["ansible_play_hosts"] if name in assigned]
        ended = {name: variables["hostvars"][name][TRIAL] for name in reached}
        clients = steps.client_versions(assigned, ended, before["clients"])
        state, now = saved.read_state(path), time.time()
        saved.ensure_acquired(path)
        if assigned:
            state = saved.doubted(steps.record_all(state, assigned, ended, now), path.parent)
            write_text(path, dumps(state))
        lost = [*before["lost_load_hosts"], *steps.lost_load_hosts(assigned, ended)]
        # Those that are lost, too: that is an outcome.
        hosts = variables["ansible_play_hosts_all"]
        load_hosts = variables["groups"].get("load_generators", [])
        following = steps.assignments(state, hosts, load_hosts, lost, clients, now)
        saved.set_trials_aside(path.parent, [one["trial"]["id"] for one in following.values()])
        _show(steps.results_of(state, assigned))
        _show(f"the load host {name} could not be reached any more" for name in lost)
        return {
            "state": str(path),
            "assigned": following,
            "lost_load_hosts": lost,
            "clients": clients,
        }

    def _planned(self, arguments: dict, variables: dict) -> dict:
        host = variables["inventory_hostname"]
        began = self._output(["date", "+%s"]).strip()
        own, key = variables[NEXT]["assigned"][host], arguments["key_file"]
        return _progress(
            trial.planned(host, address_of(host, variables), own, arguments["result"], key, began)
        )

    def _failed(self, arguments: dict, variables: dict) -> dict:
        return _progress(trial.failed(_trial(variables), arguments["result"]))

    def _serve(self, _arguments: dict, variables: dict) -> dict:
        """Have the trial's replicas serve; every trial is an engine run of its own."""
        progress = _trial(variables)
        if progress.failed:
            return _progress(progress)
        plan = plan_of(progress.plan, "plan")
        # The first one finds no target.
        self._low_level_execute_command(shlex.join(["systemctl", "stop", plan.target]))
        host = variables["inventory_hostname"]
        options = options_of(read_role("replicas"), variables, self._templar, host)
        decided = decide(plan, options, None, engine_later=True)  # the engine is checked before
        # What is tried is no release.
        replicas = [item for item in decided.resources if item["kind"] == "replicas"]
        result = self._execute_module(
            module_name="apiary.instinct.converge",
            module_args=with_certificates(
                self, {"resources": replicas, "secrets": options["replicas_secrets"]}, variables
            ),
            task_vars=variables,
        )
        starts = "" if result.get("failed") else self._starts(progress)
        served = trial.serving(progress, completed(result, "converge"), starts)
        return {**_progress(served), "changed": bool(result.get("changed"))}

    def _ended(self, arguments: dict, variables: dict) -> dict:
        """Return the outcome of a trial; a step that failed is one, too."""
        progress, measured = _trial(variables), arguments["result"]
        load_host = variables[NEXT]["assigned"][variables["inventory_hostname"]]["load_host"]
        path = measured.get("path") or ""
        served = progress.stage == "measure"
        outcome = trial.outcome_of(
            progress,
            measured,
            self._starts(progress) if served else "",
            self._journal(progress) if progress.stage in ("start", "measure") else "",
            load_host,
            os.path.relpath(path, Path(variables[NEXT]["state"]).parent) if path else "",
        )
        return {
            "outcome": to_document(outcome),
            "load_lost": served and bool(measured.get("unreachable")),
            "client": trial.client_version(measured.get("bench") or {}),
        }

    def _choose(self, arguments: dict, variables: dict) -> dict:
        """Write the winner beside the state, show what it changes; refuse an unfinished tuning."""
        path = Path(arguments["state"])
        file, state = path.with_name("tuned.yml"), saved.read_state(path)
        text, diff = variables_of(state, path)
        limits = routers_limits(state)
        if not self._task.check_mode:
            if text:
                write_text(file, text)
            if limits:
                write_text(path.with_name("routers.yml"), yaml.safe_dump(limits, sort_keys=False))
            saved.release(path)
        lines = [*summary(state), *diff.splitlines()]
        if text:
            lines.append(f"to be reviewed: {shown(file)} is the deployment with these changes")
        lines = _show([*lines, *filter(None, [arguments["report"]])])
        if state.choice is None:
            raise error("TRIAL-OPEN", state.requested.deployment.name, "not all was measured")
        winner = winner_of(state)
        there = variables["groups"].get("tune_there", ())
        # Of other hosts nothing was shown.
        used = [host.name for host in state.hosts if host.used and host.name in there]
        return {
            "choice": to_document(state.choice),
            "winner": to_document(candidates.deployment_of(state, winner)) if winner else None,
            "target": ",".join(used) if winner and arguments["serve"] else "!all",
            "summary": lines,
        }

    def _starts(self, progress: trial.Progress) -> str:
        return self._output([*_STARTS, *progress.units])

    def _journal(self, progress: trial.Progress) -> str:
        # A busy machine's journal lags behind the end of a unit.
        self._output(["journalctl", "--sync"])
        units = [f"--unit={unit}" for unit in progress.units]
        return self._output([*_JOURNAL, f"--since=@{progress.began}", *units])

    def _output(self, argv: list[str]) -> str:
        return str(self._low_level_execute_command(shlex.join(argv))["stdout"])


def _servers(host: str, info: dict, routers: list[dict]) -> list[dict]:
    """Return what each router has of servers; raise where one is lost that may send requests."""
    lost = [router["item"] for router in routers if router.get("unreachable")]
    if lost and info["serving"]:
        raise error(
            "ROLLOUT-ROUTER-UNREACHABLE",
            ", ".join(lost),
            f"could not be reached; it may send requests to {host}; if it is dead and gets no"
            f" request, leave it out: -e '{json.dumps({'drain_skip': lost})}'",
        )
    return [router["servers"] for router in routers if "servers" in router]


def _show(lines) -> list[str]:
    """Show lines below the task, and return them."""
    shown_lines = list(lines)
    for line in shown_lines:
        DISPLAY.display(f"  {line}")
    return shown_lines


def _trial(variables: dict) -> trial.Progress:
    return from_document(trial.Progress, variables[TRIAL]["progress"], "progress")


def _progress(progress: trial.Progress) -> dict:
    return {
        "progress": to_document(progress),
        "prepare": progress.stage == "prepare" and not progress.failed,
        "measure": progress.stage == "measure" and not progress.failed,
    }
