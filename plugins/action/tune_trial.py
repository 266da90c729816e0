# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One trial on its host: the adapter from Ansible to plugin_utils.tune.trial."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ..plugin_utils.adapters import Deciding, completed
from ..plugin_utils.documents import from_document, to_document
from ..plugin_utils.host.role_options import options_of, read_role
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.render.replicas import decide
from ..plugin_utils.tune import trial as trials

# One that died has its old InvocationID until it is started anew.
_STARTS = ("systemctl", "show", "--property=InvocationID,MainPID,ActiveState,NRestarts")
# On a terminal, as over SSH, it would colour errors by their priority.
_JOURNAL = ("env", "SYSTEMD_COLORS=0", "journalctl", "--no-pager", "--output=cat", "--lines=2000")


class ActionModule(Deciding):
    """The tune_trial action."""

    _supports_check_mode = False

    def decide(self, given, task_vars):
        """Do one step of a trial; a failure is data, for the steps after it."""
        step, result = given["step"], given["result"]
        if step == "planned":
            return self._progress(self._planned(given, task_vars))
        progress = from_document(trials.Progress, given["progress"]["progress"], "progress")
        if step == "failed":
            return self._progress(trials.failed(progress, result))
        if step == "serve":
            return self._serve(progress, task_vars)
        path = result.get("path") or ""
        told = trials.ended(
            progress,
            result,
            self._starts(progress) if progress.stage == "measure" else "",
            self._journal(progress) if progress.stage in ("start", "measure") else "",
            given["trial"]["load_host"],
            os.path.relpath(path, Path(given["state"]).parent) if path else "",
        )
        return {"reported": to_document(told)}

    def _planned(self, given, task_vars):
        host = task_vars["inventory_hostname"]
        address = task_vars.get("apiary_address") or task_vars.get("ansible_host") or host
        began = self._output(["date", "+%s"]).strip()
        return trials.planned(
            host, address, given["trial"], given["result"], given["options"], began
        )

    def _serve(self, progress, task_vars):
        """Have the trial's replicas serve; every trial is an engine run of its own."""
        if progress.failed:
            return self._progress(progress)
        plan = plan_of(progress.plan, "plan")
        # The first one finds no target.
        self._low_level_execute_command(shlex.join(["systemctl", "stop", plan.target]))
        host = task_vars["inventory_hostname"]
        options = options_of(read_role("replicas"), task_vars, self._templar, host)
        decided = decide(plan, options, None, engine_later=True)  # the engine is checked before
        # What is tried is no release.
        replicas = [item for item in decided.resources if item["kind"] == "replicas"]
        result = self._execute_module(
            module_name="apiary.instinct.converge",
            module_args={"resources": replicas, "secrets": options["replicas_secrets"]},
            task_vars=task_vars,
        )
        starts = "" if result.get("failed") else self._starts(progress)
        served = trials.serving(progress, completed(result, "converge"), starts)
        return {**self._progress(served), "changed": bool(result.get("changed"))}

    def _starts(self, progress):
        return self._output([*_STARTS, *progress.units])

    def _journal(self, progress):
        # A busy machine's journal lags behind the end of a unit.
        self._output(["journalctl", "--sync"])
        units = [f"--unit={unit}" for unit in progress.units]
        return self._output([*_JOURNAL, f"--since=@{progress.began}", *units])

    def _output(self, argv):
        return self._low_level_execute_command(shlex.join(argv))["stdout"]

    @staticmethod
    def _progress(progress):
        return {
            "progress": to_document(progress),
            "measure": progress.stage == "measure" and not progress.failed,
            "prepare": progress.stage == "prepare" and not progress.failed,
            "plan": to_document(progress.plan),
            "bench": to_document(progress.bench),
        }
