# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run weights_publish as a job on the host and show how far it is.

Half a terabyte takes longer than an SSH connection may last: the job goes on without it, and
without the playbook; the next run finds it at work, or done.
"""

from __future__ import annotations

import base64
import json
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.adapters import completed, refused, too_old

DISPLAY = Display()
# The job's own limit: no download takes a week.
LIMIT_SECONDS = 7 * 86400
# Seconds between two polls: short jobs are over soon, long ones need few lines.
FIRST_POLL = 0.5
LONGEST_POLL = 20.0
LOST_POLLS = 30


class ActionModule(ActionBase):
    """The weights_publish action."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the module's result, its findings explained."""
        super().run(tmp, task_vars)
        result = self._published(task_vars)
        if old := too_old(self, result, task_vars):
            raise refused(old)
        return completed(result, self._task.action)

    def _published(self, task_vars):
        if self._task.check_mode or self._task.args.get("action") == "prune":
            return self._execute_module(task_vars=task_vars)
        # A task that is itself asynchronous would end with the job's number.
        self._task.async_val = LIMIT_SECONDS
        try:
            started = self._execute_module(task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        if started.get("failed") or "ansible_job_id" not in started:
            return started
        return self._follow(started["ansible_job_id"], task_vars)

    def _follow(self, job, task_vars):
        """Wait for a job and show its progress; a lost connection is made again."""
        delay, lost, shown = FIRST_POLL, 0, None
        while True:
            time.sleep(delay)
            delay = min(delay * 2, LONGEST_POLL)
            try:
                result = self._status(job, "status", task_vars)
                if result.get("finished") or result.get("failed"):
                    self._status(job, "cleanup", task_vars)
                    return self._own(result)
                line = self._progress(task_vars)
                lost = 0
            except AnsibleConnectionFailure:
                lost += 1
                if lost == LOST_POLLS:
                    raise
                self._connection.reset()
                continue
            if line and line != shown:
                DISPLAY.display(f"{task_vars['inventory_hostname']}: {line}")
                shown = line

    def _status(self, job, mode, task_vars):
        """Ask for a job's state, or remove what is left of it."""
        directory = self.get_shell_option("async_dir", default="~/.ansible_async")
        return self._execute_module(
            module_name="ansible.legacy.async_status",
            module_args={
                "jid": job,
                "mode": mode,
                "_async_dir": self._remote_expand_user(directory),
            },
            task_vars=task_vars,
        )

    @staticmethod
    def _own(result):
        """Return the module's part of a job's result."""
        of_job = ("ansible_job_id", "finished", "started", "results_file", "stdout", "stderr")
        of_job += ("stdout_lines", "stderr_lines")
        return {key: value for key, value in result.items() if key not in of_job}

    def _progress(self, task_vars):
        """Return a line on how far the job is; nothing if it does not tell."""
        arguments = self._task.args
        own = str(arguments.get("repository")).replace("/", "--")
        answer = self._execute_module(
            module_name="ansible.legacy.slurp",
            module_args={"src": f"{arguments.get('store')}/.apiary/{own}.progress.json"},
            task_vars=task_vars,
        )
        if answer.get("failed"):
            return None
        told = json.loads(base64.b64decode(answer["content"]))
        done, total, speed = (
            told[f"bytes_{name}"] / 1e9 for name in ("done", "total", "per_second")
        )
        return f"{told['doing']} {done:.1f} of {total:.1f} GB, {speed:.2f} GB/s"
