# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure engines under load: the adapter from Ansible to plugin_utils.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ansible.utils.display import Display

from ..module_utils.load.run import unpacked
from ..plugin_utils.adapters import Deciding
from ..plugin_utils.bench.of_plan import served_by
from ..plugin_utils.bench.run import options
from ..plugin_utils.bench.run.conduct import Order, conduct, requested_of
from ..plugin_utils.bench.run.progress import found_words, told, words
from ..plugin_utils.bench.run.session import NextEngineRun, Session
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import read_text
from ..plugin_utils.findings import error
from ..plugin_utils.plan.check import parse_plan

DISPLAY = Display()


def served_of(names):
    """Return what the plans in these files on the controller say; None where there are none."""
    texts = {name: read_text(name) for name in names}
    plans = [(parse_plan(text, name), text) for name, text in texts.items()]
    return served_by(plans) if plans else None


def client_of(arguments, served):
    """Return the load generator that the options name; raises ApiaryError."""
    command = arguments["command"] or ["vllm"]
    try:
        return options.client_of(
            arguments, served, command, arguments["container_engine"], arguments["gpu_metrics"]
        )
    except ValueError:
        lists = filter(None, [arguments["client_cpus"], *arguments["replica_cpus"]])
        raise error(
            "BENCH-CPUS", "client_cpus, replica_cpus", f"{' and '.join(lists)}: not lists of CPUs"
        ) from None


class ActionModule(Deciding):
    """The bench action."""

    def decide(self, arguments, task_vars):
        """Return the benchmark; refuse with the findings that keep it from beginning."""
        if self._task.check_mode:
            return {"done": True, "findings": []}
        served = served_of(arguments["plans"])
        target = options.target_of(arguments, served, arguments["urls"], arguments["metrics"])
        execute = partial(self._execute, arguments["key_file"], task_vars)
        session = Session(
            target, client_of(arguments, served), execute, engine_run=arguments["engine_run"]
        )
        requested = arguments["requested"]
        order = Order(
            arguments["name"],
            requested_of(requested, arguments["workload"], arguments["slo"], "requested"),
            Path(arguments["dest"]),
            {**(served.environment if served else {}), **arguments["environment"]},
            arguments["rules"],
            own_seed="seed" not in requested,
        )
        try:
            bench = conduct(order, session, self._show)
        except NextEngineRun as ended:
            return {"done": False, "next_engine_run": ended.engine_run, "findings": []}
        for finding in bench.findings:
            if finding.severity != "info":
                DISPLAY.warning(str(finding))
        return {
            "done": True,
            "bench": to_document(bench),
            "findings": to_document(bench.findings),
            "path": str(order.directory / "bench.json"),
            "summary": [*map(told, bench.levels), *map(found_words, bench.searches)],
        }

    def _execute(self, key_file, task_vars, request):
        """Run one request on the task's host."""
        arguments = {"request": request, "key_file": key_file}
        result = self._execute_module(
            module_name="apiary.instinct.bench_level",
            module_args={name: value for name, value in arguments.items() if value},
            task_vars=task_vars,
        )
        if result.get("failed") or "packed" not in result:
            raise error(
                "BENCH-HOST",
                task_vars["inventory_hostname"],
                f"cannot run a level: {result.get('msg') or result}",
            )
        return unpacked(result["packed"])

    def _show(self, progress):
        """Show a line as each level begins and ends."""
        DISPLAY.display(f"  {words(progress)}")
