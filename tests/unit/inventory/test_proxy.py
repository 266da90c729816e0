# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One variable brings a proxy to whatever a host fetches."""

from pathlib import Path

import yaml

from support.playbooks import ROOT

# Roles that fetch nothing on the host, or whose host fetches nothing by them.
LOCAL = {"apiary.instinct.acceptance", "apiary.instinct.replicas", "apiary.instinct.reboot"}


def roles_of(tasks):
    """Every role that tasks include, by their files, too."""
    for task in tasks:
        for key in ("block", "rescue", "always"):
            yield from roles_of(task.get(key, []))
        for key in ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks"):
            file = task.get(key)
            name = file["file"] if isinstance(file, dict) else file
            if name:
                place = ROOT / "playbooks" / name
                place = place if place.is_file() else ROOT / "playbooks/tasks" / Path(name).name
                yield from roles_of(yaml.safe_load(place.read_text()))
        if role := task.get("ansible.builtin.include_role"):
            yield role["name"]


def test_a11_every_play_that_has_a_host_fetch_something_takes_the_proxy():
    plays = 0
    for path in sorted(ROOT.glob("playbooks/*.yml")):
        for play in yaml.safe_load(path.read_text()):
            fetching = set(roles_of(play.get("tasks", []))) - LOCAL
            absent = "remove" in path.name or "drain" in path.name
            if fetching and not absent and "{{" not in str(fetching):
                plays += 1
                assert play.get("environment") == "{{ apiary_proxy | default({}) }}", path.name
    assert plays >= 6
