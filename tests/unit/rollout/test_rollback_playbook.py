# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rollback of a host that serves several models."""

import json

import pytest

from support.playbooks import ROOT, run_playbook


@pytest.mark.night
def test_a2_the_deployment_to_roll_back_is_named_where_there_are_several(tmp_path):
    several = {"apiary_deployments": [{"name": "one"}, {"name": "two"}]}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"gpu_hosts": {"hosts": {"gpu-001": several}}}))
    run = run_playbook(f"--inventory={inventory}", ROOT / "playbooks/rollback.yml", cwd=ROOT)
    assert run.returncode == 2
    assert "gpu-001 serves one and two: name the one to roll back" in run.stdout
