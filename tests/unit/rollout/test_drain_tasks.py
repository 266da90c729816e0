# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Until when runs drain: while they live, and for good where a host stays out."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.events import (
    deployment_of,
    server_of,
)

TASKS = Path(__file__).parents[3] / "playbooks/tasks"
OUT = ("apiary-a-b-0.service", "apiary-a-b-1.service")
INCLUDE = "ansible.builtin.include_tasks"


def read(name):
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["rollout_back.yml", "maintain_host.yml"])
def test_what_a_run_leaves_out_has_no_deadline(name):
    [rescue] = [task["rescue"] for task in read(name) if "rescue" in task]
    drains = [task for task in rescue if task.get(INCLUDE) == "../tasks/drain.yml"]
    assert len(drains) == 1
    assert "drain_deadline" not in drains[0]["vars"]
    assert drains[0]["vars"]["drain_timeout"] == 0
    assert drains[0]["vars"]["drain_unreachable"] == "warn"
    # Of an inspection that failed this has only the failure.
    assert "__inspected" not in str(drains[0]["vars"])


def test_a_step_renews_its_drain_before_the_change_and_before_the_test():
    tasks = read("rollout_step.yml")
    for needle in ("Step | Replace", "Step | Smoke test"):
        place = next(n for n, task in enumerate(tasks) if task["name"].startswith(needle))
        assert tasks[place - 1][INCLUDE] == "drain_again.yml"
        assert "rollout_drain_deadline" in tasks[place - 1]["vars"]["drain_deadline"]


def test_each_trial_has_the_whole_time_that_tuning_drains_for():
    assert read("tune_trial.yml")[0][INCLUDE] == "drain_again.yml"
    for task in (read("tune_trial.yml")[0], read("tune_take.yml")[1]):
        assert task["vars"]["drain_deadline"] == "{{ tune_drain_deadline | default(86400) }}"


def test_what_is_out_names_its_servers_and_its_deployment():
    assert [server_of("gpu-001", unit) for unit in OUT] == ["gpu-001-0", "gpu-001-1"]
    assert {deployment_of(unit) for unit in OUT} == {"a-b"}
