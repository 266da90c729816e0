# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action follows a job that outlives connections, and shows how far it is."""

import base64
import json
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.apiary.instinct.plugins.action import weights_publish

DONE = {"finished": True, "started": True, "ansible_job_id": "j1", "changed": True, "path": "/x"}
RUNNING = {"finished": False, "started": True}


def progress(done):
    told = {
        "doing": "fetching",
        "bytes_done": done * 10**9,
        "bytes_total": 6 * 10**9,
        "bytes_per_second": 5 * 10**8,
    }
    return {"content": base64.b64encode(json.dumps(told).encode()).decode()}


@pytest.fixture
def follow(monkeypatch):
    """Run the action against answers to the status, and to the progress, in their order."""

    def follow(statuses, progresses=(), check_mode=False, **arguments):
        seen = SimpleNamespace(modules=[], lines=[], waits=[], resets=0, limits=[])
        task = SimpleNamespace(
            action="apiary.instinct.weights_publish",
            args={"store": "/s", "repository": "o/n", **arguments},
            check_mode=check_mode,
            async_val=0,
            diff=False,
        )
        answers = {"status": iter(statuses), "progress": iter(progresses)}

        def execute(module_name=None, module_args=None, task_vars=None, wrap_async=False):
            told = (module_args or {}).get("mode") or module_name or "module"
            seen.modules.append((told, wrap_async))
            if module_name is None:
                seen.limits.append(task.async_val)
                return {"ansible_job_id": "j1"} if wrap_async else {"changed": True}
            if told == "cleanup":
                return {}
            answer = next(answers["status" if told == "status" else "progress"], {"failed": True})
            if isinstance(answer, Exception):
                raise answer
            return answer

        action = weights_publish.ActionModule.__new__(weights_publish.ActionModule)
        action._task, action._used_interpreter = task, None
        action._connection = SimpleNamespace(reset=lambda: setattr(seen, "resets", seen.resets + 1))
        action._execute_module = execute
        action.get_shell_option = lambda _name, default: default
        action._remote_expand_user = lambda path: path
        monkeypatch.setattr(weights_publish.ActionBase, "run", lambda *_arguments: {})
        monkeypatch.setattr(weights_publish.time, "sleep", seen.waits.append)
        monkeypatch.setattr(weights_publish.DISPLAY, "display", seen.lines.append)
        seen.result = action.run(task_vars={"inventory_hostname": "writer"})
        seen.task = task
        return seen

    return follow


def test_progress_is_shown_once_and_the_result_is_the_module_s(follow):
    seen = follow([RUNNING, RUNNING, RUNNING, DONE], [progress(1), progress(1), progress(2)])
    assert seen.lines == [
        "writer: fetching 1.0 of 6.0 GB, 0.50 GB/s",
        "writer: fetching 2.0 of 6.0 GB, 0.50 GB/s",
    ]
    assert seen.result == {"changed": True, "path": "/x"}
    assert seen.modules[-1] == ("cleanup", False)


def test_only_the_job_has_the_limit(follow):
    """A task that stayed asynchronous would end with the job's number."""
    seen = follow([DONE])
    assert seen.limits == [weights_publish.LIMIT_SECONDS]
    assert seen.task.async_val == 0


def test_a_failed_job_is_a_failed_task(follow):
    assert follow([{"failed": True, "finished": True, "msg": "error: X"}]).result == {
        "failed": True,
        "msg": "error: X",
    }


def test_a_lost_connection_is_made_again(follow):
    seen = follow([AnsibleConnectionFailure("gone"), RUNNING, DONE], [progress(1)])
    assert seen.resets == 1
    assert seen.result["path"] == "/x"


def test_a_host_that_stays_away_ends_it(follow):
    with pytest.raises(AnsibleConnectionFailure):
        follow([AnsibleConnectionFailure("gone")] * weights_publish.LOST_POLLS)


def test_looks_become_rare(follow):
    seen = follow([RUNNING] * 8 + [DONE])
    assert seen.waits[:3] == [0.5, 1.0, 2.0]
    assert max(seen.waits) == weights_publish.LONGEST_POLL


@pytest.mark.parametrize("how", [{"check_mode": True}, {"action": "prune"}])
def test_what_is_short_is_no_job(follow, how):
    seen = follow([], **how)
    assert seen.modules == [("module", False)]
