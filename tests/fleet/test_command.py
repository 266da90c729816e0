# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command with real ansible-runner runs: twelve names for this machine, a playbook of files.

About 40 s on two idle cores: each wave is three starts of ansible-playbook.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.waiting import await_true

PLAYBOOK = """
- name: Change the host
  hosts: gpu_hosts
  gather_facts: false
  tasks:
    - name: Touch
      ansible.builtin.shell: echo >> '{{ playbook_dir }}/did-{{ inventory_hostname }}'
      changed_when: true
    - name: Wait until the test has looked
      ansible.builtin.wait_for:
        path: "{{ playbook_dir }}/go"
        sleep: 1
      when: hurry is not defined
    - name: Break
      apiary.instinct.refuse:
        code: ROCM-HEADERS
        subject: "{{ inventory_hostname }}"
        message: no driver
      when: inventory_hostname == bad | default('')
"""
PRIVATE = "hunter2"


class Controller:
    """An operator in a directory with an inventory and a playbook."""

    def __init__(self, directory):
        self.directory = directory
        hosts = {
            f"h{number:02d}": {
                "apiary_rack": f"r{(number - 1) // 3}",
                "hold_directory": str(directory / f"held-{number:02d}"),
            }
            for number in range(1, 13)
        }
        local = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        inventory = {"gpu_hosts": {"hosts": hosts, "vars": local}}
        (directory / "hosts.yml").write_text(json.dumps(inventory))
        # The lock of a host is taken by root; here it is a file of whoever runs the test.
        (directory / "ansible.cfg").write_text(
            "[privilege_escalation]\nbecome_method = ansible.builtin.su\nbecome_exe = "
            f"{directory / 'su'}\n"
        )
        (directory / "su").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
        (directory / "su").chmod(0o755)
        (directory / "play.yml").write_text(PLAYBOOK)

    def begin(self, *words):
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_CONFIG": str(self.directory / "ansible.cfg"),
            "A_TOKEN": PRIVATE,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "apiary", "rollout", *words],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def rollout(self, *words):
        process = self.begin(*words)
        said, _nothing = process.communicate(timeout=240)
        return process.returncode, said

    def go(self):
        (self.directory / "go").touch()

    def did(self):
        """How often each host was changed."""
        return {
            path.name.removeprefix("did-"): len(path.read_text().splitlines())
            for path in self.directory.glob("did-*")
        }

    @property
    def run(self):
        (path,) = self.directory.glob("artifacts/fleet/runs/*/run.json")
        return json.loads(path.read_text())

    def outcomes(self):
        return {one["host"]: one["outcome"] for one in self.run["hosts"]}

    def ledger(self, host):
        path = self.directory / f"artifacts/fleet/ledger/{host}.json"
        return [one["outcome"] for one in json.loads(path.read_text())["entries"]]

    def lock(self):
        return json.loads((self.directory / "artifacts/fleet/lock").read_text() or "{}")


@pytest.fixture
def controller(tmp_path):
    return Controller(tmp_path)


BASE = ("play.yml", "-i", "hosts.yml", "--yes")
TWO_WAVES = ("--limit", "h01,h04,h07", "--canary", "h01", "--batches", "100%")


def test_what_is_begun_is_killed_and_a_resumed_run_finishes(controller):
    first = controller.begin(*BASE, *TWO_WAVES)
    await_true(lambda: controller.did() == {"h01": 1} and "child" in controller.lock())
    assert controller.ledger("h01") == ["begun"]
    code, said = controller.rollout(*BASE, *TWO_WAVES)
    assert code == 1
    assert "FLEET-LOCKED" in said
    assert f"process {first.pid}" in said
    first.kill()
    first.communicate()
    orphan = controller.lock()["child"]
    # It goes on with its task, and whoever comes too early is told so.
    code, said = controller.rollout("--resume", "--yes")
    assert code == 1
    assert f"its ansible-playbook (process {orphan}) still runs" in said
    assert controller.ledger("h01") == ["begun"]
    controller.go()
    await_true(lambda: not Path(f"/proc/{orphan}").exists())
    code, said = controller.rollout("--resume", "--yes")
    assert code == 0, said
    assert set(controller.outcomes().values()) == {"done"}
    assert controller.ledger("h01") == ["interrupted", "done"]
    assert controller.did() == {"h01": 2, "h04": 1, "h07": 1}


def test_a_signal_ends_it_after_the_wave_and_a_second_one_at_once(controller):
    process = controller.begin(*BASE, *TWO_WAVES)
    await_true(lambda: controller.did() == {"h01": 1})
    process.send_signal(signal.SIGTERM)
    controller.go()
    said, _nothing = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "ends after this wave" in said
    assert controller.outcomes() == {"h01": "done", "h04": "waiting", "h07": "waiting"}
    assert controller.run["state"] == "interrupted"
    (controller.directory / "go").unlink()
    process = controller.begin("--resume", "--yes")
    await_true(lambda: controller.did() == {"h01": 1, "h04": 1, "h07": 1})
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)  # two signals that are one to the kernel would be one to the command
    process.send_signal(signal.SIGTERM)
    said, _nothing = process.communicate(timeout=240)
    assert process.returncode == 1
    assert controller.outcomes() == {"h01": "done", "h04": "interrupted", "h07": "interrupted"}
    assert controller.ledger("h04") == ["interrupted"]
    assert not list(controller.directory.glob("held-*/*")), "hosts are let go all the same"


def test_a_canary_stops_it_in_its_own_words_and_no_secret_is_kept(controller):
    secret = f"password={PRIVATE}"
    code, said = controller.rollout(*BASE, *TWO_WAVES, "-e", f"hurry=1 bad=h01 {secret}")
    assert code == 1
    assert "the canary failed: ROCM-HEADERS: no driver" in " ".join(said.split())
    assert controller.outcomes() == {"h01": "failed", "h04": "waiting", "h07": "waiting"}
    assert controller.did() == {"h01": 1}
    kept = [path for path in controller.directory.glob("artifacts/**/*") if path.is_file()]
    assert kept
    assert not [path for path in kept if PRIVATE in path.read_text(errors="replace")]
    # A resumed run is the same run.
    code, said = controller.rollout("--resume", "--yes", "-e", f"hurry=1 bad=none {secret}")
    assert code == 1
    assert "FLEET-RESUME-CHANGED" in said
    code, said = controller.rollout("--status")
    assert code == 0
    assert "FLEET-CANARY-FAILED" in said


def test_without_the_command_the_same_can_be_done_by_hand(controller):
    code, said = controller.rollout(*BASE, "-e", "@v.yml")
    assert code == 2
    (controller.directory / "v.yml").write_text("hurry: true\n")
    words = ("--limit", "h02", "-e", "@v.yml")
    code, said = controller.rollout(*BASE, *words)
    assert code == 0, said
    command = shlex.split(controller.run["waves"][0]["commands"][1])
    command[0] = str(Path(sys.executable).with_name(command[0]))
    done = subprocess.run(
        command, cwd=controller.directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert controller.did() == {"h02": 2}


def test_a_dead_host_is_told_and_within_the_budget_the_others_go_on(controller):
    dead = json.loads((controller.directory / "hosts.yml").read_text())
    dead["gpu_hosts"]["hosts"]["h04"] |= {
        "ansible_connection": "ssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
    }
    (controller.directory / "hosts.yml").write_text(json.dumps(dead))
    code, said = controller.rollout(
        *BASE, "-e", "hurry=1", "--limit", "h01,h04,h07", "--batches", "100%",
        "--failure-budget", "1", "--retries", "0", "--json",
    )  # fmt: skip
    assert code == 1, said
    assert controller.outcomes() == {"h01": "done", "h04": "unreachable", "h07": "done"}
    assert controller.ledger("h04") == ["unreachable"]
    assert controller.did() == {"h01": 1, "h07": 1}


def test_a_check_changes_nothing_and_nobody_is_asked(controller):
    code, said = controller.rollout(*BASE[:-1], "--check", "-e", "hurry=1", "--limit", "rack-9")
    assert code == 1
    assert "PROBE-NO-HOSTS" in said
    code, said = controller.rollout(
        *BASE[:-1], "--check", "-e", "hurry=1", "--batches", "100%", "--domains-together", "3"
    )
    assert code == 0, said
    assert controller.did() == {}
    assert not (controller.directory / "artifacts/fleet/ledger").exists()
    code, said = controller.rollout(*BASE[:-1], "-e", "hurry=1")
    assert code == 2
    assert "--yes" in said
