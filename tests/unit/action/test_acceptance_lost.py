# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that cannot be reached any more is not what it was when it was accepted."""

import json
from pathlib import Path

from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - apiary.instinct.acceptance:
        dest: "{{ playbook_dir }}/made"
"""


def test_a_host_that_is_not_reached_is_told(tmp_path):
    lost = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_connection": "ssh"}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu-001": lost}}}))
    (tmp_path / "play.yml").write_text(PLAY)
    done = run_playbook("-i", "hosts.json", "play.yml", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    told = json.loads((tmp_path / "made/survey.json").read_text())
    assert (told["host"], told["reached"]) == ("gpu-001", False)
    assert [one["code"] for one in told["findings"]] == ["FLEET-UNREACHABLE"]
