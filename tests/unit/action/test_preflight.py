# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What site.yml tries first, and doctor; this machine stands for two hosts."""

import json
import sys

import pytest

from apiary.app.cli import main
from support.playbooks import ROOT, run_playbook

pytestmark = pytest.mark.night

DIGEST = "a" * 64
PLAY = f"""
- hosts: gpu_hosts
  connection: local
  gather_facts: false
  tasks:
    - import_tasks: {ROOT}/playbooks/tasks/look.yml
      vars:
        look_save_plans: false
    - import_tasks: {ROOT}/playbooks/tasks/preflight.yml
      when: apiary_preflight | default(true) | bool
    - ansible.builtin.debug:
        msg: changed {{{{ inventory_hostname }}}}
"""


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    """Two hosts, of which one has no wheels; `engine` is all that they are to get."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    (tmp_path / "wheels").mkdir()
    shared = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "apiary_concerns": ["engine"],
        "apiary_deployment": {
            "name": "a",
            "model": {"name": "Qwen/Qwen3-0.6B", "path": "/mnt/models/Qwen/Qwen3-0.6B/current"},
            "layout": {"tensor_parallel_size": 1},
            "engine": {"version": "0.33.0", "executable": f"{tmp_path}/vllm/0.33.0/bin/vllm"},
        },
        "engine_requirements": {"0.33.0": f"vllm==0.33.0 --hash=sha256:{DIGEST}"},
    }
    hosts = {
        "gpu-001": {**shared, "engine_wheels": f"{tmp_path}/wheels"},
        "gpu-002": {**shared, "engine_wheels": "/nowhere/wheels"},
    }
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"gpu_hosts": {"hosts": hosts}}))
    return path


def test_a_host_that_lacks_something_ends_before_it_is_changed(inventory, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY)
    for options in ([], ["--check"]):
        done = run_playbook("-i", str(inventory), "play.yml", *options, cwd=tmp_path)
        output = done.stdout + done.stderr
        assert done.returncode == 2, output
        assert "error    images and wheels      1 of 2 hosts" in output
        assert "PREFLIGHT-WHEELS: gpu-002: /nowhere/wheels: is not there" in output
        assert "changed gpu-001" in output
        assert "changed gpu-002" not in output
    for options in (["-e", "apiary_preflight=false"], ["--skip-tags", "preflight"]):
        done = run_playbook("-i", str(inventory), "play.yml", *options, cwd=tmp_path)
        assert "changed gpu-002" in done.stdout, done.stdout + done.stderr


def test_doctor_shows_the_same_table(inventory, capsys):
    assert main(["doctor", "-i", str(inventory), "--connect", "--json"]) == 1
    out, err = capsys.readouterr()
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert checks["survey of a run"]["outcome"] == "ok"
    assert checks["images and wheels"]["message"] == "1 of 2 hosts"
    (finding,) = [
        each for each in json.loads(err)["findings"] if each["code"] == "PREFLIGHT-WHEELS"
    ]
    assert finding["subject"] == "gpu-002"
