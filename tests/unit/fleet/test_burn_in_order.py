# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts wait while the GPUs of new ones are loaded: playbooks/tasks/converge.yml."""

import json
import re
import shutil

from support.playbooks import ROOT, run_playbook

PLAY = """
- hosts: gpu_hosts
  gather_facts: false
  tasks:
    - ansible.builtin.include_tasks: converge.yml
"""
LOOK = """
- name: Look
  ansible.builtin.set_fact:
    __acceptance_burn_in_due: {burn_in: "{{ why | default('') }}"}
  when: __burn_in_tasks is defined
- name: Load
  ansible.builtin.ping:
  vars:
    ansible_connection: "{{ 'ssh' if dies is defined else 'local' }}"
    ansible_host: 127.0.0.1
    ansible_port: 1
  when: __burn_in_tasks is not defined
"""
SERVE = """
- name: Start
  ansible.builtin.debug:
"""
NEW = {"why": "neither a burn-in nor an acceptance of it is recorded"}


def converge(tmp_path, **lost):
    """Return the exit code, and which hosts did what, in order."""
    hosts = {
        # Two hosts of one replica, one of another, and one whose replicas stay as they are.
        "gpu-001": {"__spans_hosts": True},
        "gpu-002": {"__spans_hosts": True, **NEW, **lost},
        "gpu-003": {},
        "gpu-004": {"__probed": {"due": ["engine"]}, **NEW},
    }
    shutil.copy(ROOT / "playbooks/tasks/converge.yml", tmp_path)
    for name, text in {"play": PLAY, "burn_in": LOOK, "serve": SERVE}.items():
        (tmp_path / f"{name}.yml").write_text(text)
    (tmp_path / "preflight.yml").write_text("[]")
    given = {"ansible_connection": "local", "apiary_preflight": False}
    given["__probed"] = {"due": ["replicas"], "acts": []}
    inventory = tmp_path / "hosts.json"
    document = {"hosts": {name: {**given, **own} for name, own in hosts.items()}}
    inventory.write_text(json.dumps({"gpu_hosts": document}))
    run = run_playbook(f"--inventory={inventory}", tmp_path / "play.yml", cwd=tmp_path)
    tasks = re.findall(r"^TASK \[(Load|Start)\].*\n((?:.+\n)+)", run.stdout, re.MULTILINE)
    done = [
        (name, sorted(re.findall(r"^ok: \[(\S+)\]", text, re.MULTILINE))) for name, text in tasks
    ]
    return run.returncode, [one for one in done if one[1]]


def test_others_serve_while_a_new_hosts_gpus_are_loaded(tmp_path):
    code, done = converge(tmp_path)
    assert (code, done) == (
        0,
        [
            ("Start", ["gpu-003", "gpu-004"]),
            ("Load", ["gpu-002"]),
            ("Start", ["gpu-001", "gpu-002"]),
        ],
    )


def test_who_waits_serves_also_when_the_host_that_is_loaded_is_lost(tmp_path):
    code, done = converge(tmp_path, dies=True)
    assert code == 4
    assert done == [("Start", ["gpu-003", "gpu-004"]), ("Start", ["gpu-001"])]
