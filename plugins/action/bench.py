# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure engines under load: the adapter from Ansible to plugin_utils.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ansible.utils.display import Display

from ..module_utils.load.run import BenchError, unpacked
from ..plugin_utils.adapters import Deciding, host_of, module_result
from ..plugin_utils.bench.run.conduct import begin, conduct, served_of
from ..plugin_utils.bench.run.drive import lines, words
from ..plugin_utils.bench.run.session import NextEngineRun
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import error
from ..plugin_utils.web_keys import authority_of

DISPLAY = Display()


class ActionModule(Deciding):
    """The bench action."""

    def decide(self, arguments, task_vars):
        """Return the benchmark; refuse with the findings that keep it from beginning."""
        if self._task.check_mode:
            return {"done": True, "findings": []}
        execute = partial(self._execute, arguments["key_file"], task_vars)
        order, session = begin(arguments, served_of(arguments["plans"]), execute)
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
            "summary": lines(bench),
        }

    def _execute(self, key_file, task_vars, request):
        """Run one request on the task's host, which verifies replicas that speak TLS."""
        artifacts = self._templar.template(task_vars.get("apiary_artifacts") or "artifacts")
        web = Path(artifacts, "fleet", "web")
        if (web / "authority.pem").exists():
            request = {**request, "authority": authority_of(str(web))}
        arguments = {"request": request, **({"key_file": key_file} if key_file else {})}
        result = module_result(self, "bench_level", arguments, task_vars, partial="failed")
        host = host_of(self, task_vars)
        if result.get("failed") or "packed" not in result:
            raise error("BENCH-HOST", host, f"cannot run a level: {result.get('msg') or result}")
        try:
            return unpacked(result["packed"])
        except BenchError as failure:
            raise error("BENCH-HOST", host, str(failure)) from failure

    def _show(self, progress):
        """Show a line as each level begins and ends."""
        DISPLAY.display(f"  {words(progress)}")
