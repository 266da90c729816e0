# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which maintenance changes a host: no engine runs while its driver changes."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
TASKS = ROOT / "playbooks/tasks/maintain_change.yml"


def test_replicas_that_a_reboot_started_are_stopped_before_the_host_is_inspected():
    tasks = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    names = [task["name"].removeprefix("Change | ") for task in tasks]
    reboot = names.index("Reboot, as requested")
    stops = [
        place
        for place, task in enumerate(tasks)
        if "'stop'" in str(task.get("ansible.builtin.command", ""))
    ]
    assert stops[0] < reboot < stops[1] < names.index("Inspect again")
    assert "maintain_reboot" in str(tasks[stops[1]]["when"])


def test_a_host_that_was_asked_for_its_burn_in_before_its_replicas_changed_is_not_asked_again():
    tasks = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    look = ROOT / "roles/acceptance/tasks/burn_in_due.yml"
    asked = yaml.safe_load(look.read_text(encoding="utf-8"))[0]["register"]
    (again,) = [task for task in tasks if task["name"] == "Change | Burn in"]
    assert again["when"] == f"{asked} is not defined"


def test_a_host_that_no_router_knows_answers_before_it_returns_too():
    """Whoever it serves, what it is sent goes to its replicas' own ports."""
    tasks = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    (smoke,) = [task for task in tasks if "apiary.instinct.replica_smoke" in task]
    assert smoke["when"] == "__replica.1.unit in __replica.0.serving"
    host = yaml.safe_load(TASKS.with_name("maintain_host.yml").read_text(encoding="utf-8"))
    steps = next(task["block"] for task in host if "block" in task)
    registered = [task.get("register") for task in steps]
    (gate,) = [task for task in steps if task.get("register") == "__gate"]
    assert gate["when"] == "__progress.maintenance.todo"
    assert smoke["apiary.instinct.replica_smoke"]["smoke"] == "{{ __gate.smoke }}"
    # Before anything of it is stopped.
    change = [task["name"] for task in steps].index("Host | Change the host")
    assert registered.index("__gate") < change
