# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from apiary.app.cli import main
from support.host.containers import container_plan

UNITS = {
    "systemd": "etc/systemd/system/apiary-qwen3-235b-0.service",
    "quadlet": "etc/containers/systemd/apiary-qwen3-235b-0.container",
    "docker": "etc/systemd/system/apiary-qwen3-235b-0.service",
}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A directory with a plan for quadlets."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(dumps(container_plan("quadlet")))


@pytest.mark.parametrize("target", UNITS)
def test_one_plan_for_every_runtime(planned, capsys, target):
    assert main(["render", "plan.json", "--out", "out", "--target", target, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["target"] == target
    assert f"out/{UNITS[target]}" in said["files"]
    assert ("docker run" in Path("out", UNITS[target]).read_text()) == (target == "docker")


def test_the_deployment_says_which_where_nobody_else_does(planned, capsys):
    assert main(["render", "plan.json", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "quadlet"


def test_findings_are_told(planned, capsys):
    Path("plan.json").write_text(dumps(container_plan("quadlet", image="vllm/vllm:1")))
    assert main(["render", "plan.json", "--out", "out"]) == 0
    assert "warning: CONTAINER-UNPINNED" in capsys.readouterr().err


def test_a_plan_without_an_image_writes_nothing(planned, capsys):
    Path("plan.json").write_text(dumps(container_plan("native", image=None)))
    assert main(["render", "plan.json", "--out", "out", "--target", "docker"]) == 1
    assert "CONTAINER-NO-IMAGE" in capsys.readouterr().err
    assert not Path("out").exists()
