# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses
import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from apiary.app.cli import main
from support.demo import demo_plan

RENDER = ["render", "plan.json", "--out", "out", "--target", "kubernetes"]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A directory with a plan whose deployment names an image."""
    monkeypatch.chdir(tmp_path)
    made = demo_plan()
    spec = dataclasses.replace(made.deployment.engine, image="registry.example/vllm:v0.33.0")
    deployment = dataclasses.replace(made.deployment, engine=spec)
    Path("plan.json").write_text(dumps(dataclasses.replace(made, deployment=deployment)))
    return made


def test_the_objects_are_written_and_findings_told(plan, capsys):
    assert main([*RENDER, "--render-gid", "109", "--namespace", "models"]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [
        "out/kubernetes/qwen3-235b/00-shared.yml",
        "out/kubernetes/qwen3-235b/gpu-001.yml",
    ]
    assert "KUBE-UNPINNED" in said.err
    assert "KUBE-SUBSET" in said.err
    text = Path("out/kubernetes/qwen3-235b/gpu-001.yml").read_text()
    assert "namespace: models" in text
    assert "- 109" in text


def test_a_refusal_writes_nothing(plan, capsys):
    assert main([*RENDER, "--memory", "much", "--json"]) == 1
    assert not Path("out").exists()
    found = json.loads(capsys.readouterr().err)["findings"]
    assert [one["code"] for one in found] == ["KUBE-AMOUNT"]


def test_the_systemd_target_needs_none_of_it(plan, capsys):
    assert main(["render", "plan.json", "--out", "out"]) == 0
    assert capsys.readouterr().err == ""
