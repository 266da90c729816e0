# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure engines under load: the adapter from Ansible to plugin_utils.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.load.run import unpacked
from ..plugin_utils.adapters import refused
from ..plugin_utils.bench.of_plan import served_by
from ..plugin_utils.bench.run.conduct import Order, asked_of, conduct
from ..plugin_utils.bench.run.level import Client, cpus_of
from ..plugin_utils.bench.run.progress import found_words, told, words
from ..plugin_utils.bench.run.session import NextLife, Session
from ..plugin_utils.bench.types import Target
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import read_text
from ..plugin_utils.findings import ApiaryError, error
from ..plugin_utils.plan.check import parse_plan

DISPLAY = Display()
OPTIONS = {
    "name": {"type": "str", "required": True},
    "dest": {"type": "path", "required": True},
    "urls": {"type": "list", "elements": "str", "required": True},
    "metrics": {"type": "list", "elements": "str", "default": []},
    "model": {"type": "str", "default": ""},
    "tokenizer": {"type": "str"},
    "gpus": {"type": "int"},
    "hosts": {"type": "int"},
    "workload": {"type": "str"},
    "slo": {"type": "str", "default": ""},
    "asked": {"type": "dict", "default": {}},
    "backend": {"type": "str", "choices": ["vllm", "builtin"], "default": "vllm"},
    "command": {"type": "list", "elements": "str"},
    "image": {"type": "str"},
    "container_engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
    "version": {"type": "str"},
    "client_cpus": {"type": "str"},
    "replica_cpus": {"type": "list", "elements": "str", "default": []},
    "gpu_metrics": {"type": "str", "default": "none"},
    "self_test": {"type": "bool", "default": True},
    "session_header": {"type": "str"},
    "timeout": {"type": "float"},
    "key_file": {"type": "path"},
    "plans": {"type": "list", "elements": "path", "default": []},
    "environment": {"type": "dict", "default": {}},
    "rules": {"type": "dict", "default": {}},
    "life": {"type": "int", "default": 0},
}


def served_of(names):
    """Return what the plans in these files on the controller say; None where there are none."""
    texts = {name: read_text(name) for name in names}
    plans = [(parse_plan(text, name), text) for name, text in texts.items()]
    return served_by(plans) if plans else None


def client_of(given, served):
    """Return the load generator that the options name; raises ApiaryError."""
    cpus = given["client_cpus"]
    bound = [*given["replica_cpus"], *(served.cpus if served else ())]
    try:
        busy = [cpu for text in bound for cpu in cpus_of(text)]
        return Client(
            backend=given["backend"],
            version=given["version"],
            command=tuple(map(str, given["command"] or ["vllm"])),
            image=given["image"],
            engine=given["container_engine"],
            cpus=cpus_of(cpus) if cpus and cpus != "apart" else (),
            apart_from=tuple(busy) if cpus == "apart" else None,
            gpus=given["gpu_metrics"],
            self_test=given["self_test"],
            timeout=given["timeout"],
            session_header=given["session_header"],
        )
    except ValueError:
        raise error(
            "BENCH-CPUS",
            "client_cpus, replica_cpus",
            f"{' and '.join(filter(None, [cpus, *given['replica_cpus']]))}: not lists of CPUs",
        ) from None


class ActionModule(ActionBase):
    """The bench action."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the benchmark; fail with the findings that keep it from beginning."""
        super().run(tmp, task_vars)
        _validation, given = self.validate_argument_spec(OPTIONS)
        if self._task.check_mode:
            return {"changed": False, "done": True, "findings": []}
        try:
            served = served_of(given["plans"])
            target = Target(
                urls=tuple(map(str, given["urls"])),
                model=given["model"],
                metrics=tuple(map(str, given["metrics"])),
                tokenizer=given["tokenizer"] or (served.tokenizer if served else None),
                gpus=given["gpus"] or (served.gpus if served else None),
                hosts=given["hosts"] or (served.hosts if served else None),
            )
            execute = partial(self._execute, given["key_file"], task_vars)
            session = Session(target, client_of(given, served), execute, life=given["life"])
            order = Order(
                given["name"],
                asked_of(given["asked"], given["workload"], given["slo"], "asked"),
                Path(given["dest"]),
                {**(served.environment if served else {}), **given["environment"]},
                given["rules"],
                own_seed="seed" not in given["asked"],
            )
            bench = conduct(order, session, self._show)
        except NextLife as ended:
            return {"changed": False, "done": False, "next_life": ended.life, "findings": []}
        except ApiaryError as refusal:
            raise refused(refusal) from None
        for finding in bench.findings:
            if finding.severity != "info":
                DISPLAY.warning(str(finding))
        return {
            "changed": False,
            "done": True,
            "bench": to_document(bench),
            "findings": to_document(bench.findings),
            "path": str(order.directory / "bench.json"),
            "summary": [*map(told, bench.levels), *map(found_words, bench.found)],
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
