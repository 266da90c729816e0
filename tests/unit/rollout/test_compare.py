# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import copy

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.plan import compare_answers
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.read import situation_of

UNIT = "apiary-x-0.service"
PLAN = {
    "deployment": {
        "name": "x",
        "model": {"name": "a/b", "path": "/srv/a/b"},
        "engine": {"name": "vllm", "version": "0.33.0", "image": None, "runtime": "native"},
    },
    "layout": {"replicas": 1, "tensor_parallel_size": 4},
    "replicas": [
        {
            "unit": UNIT,
            "port": 8000,
            "gpus": ["0000:05:00.0"],
            "argv": ["/opt/vllm/bin/vllm", "serve", "/srv/a/b", "--max-model-len", "4096"],
            "env": {"VLLM_ROCM_USE_AITER": "1"},
        }
    ],
}


def changed(path, value):
    """The plan with another value at a path; a list grows by it."""
    plan = copy.deepcopy(PLAN)
    target = plan
    *way, last = path.split(".")
    for name in way:
        target = target[int(name)] if name.isdigit() else target[name]
    if isinstance(target.get(last), list) and isinstance(value, list):
        target[last] += value
    else:
        target[last] = value
    return plan


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (PLAN, ("must", "default")),
        (changed("replicas.0.argv", ["--max-num-seqs", "64"]), ("must", "default")),
        (changed("replicas.0.env", {"VLLM_ROCM_USE_AITER": "0"}), ("should", "kernels")),
        (changed("replicas.0.argv", ["--kv-cache-dtype", "fp8"]), ("should", "kernels")),
        (changed("replicas.0.argv", ["--kv-cache-dtype=fp8"]), ("should", "kernels")),
        (changed("deployment.engine.version", "0.34.0"), ("should", "engine")),
        (changed("deployment.engine.image", "vllm:1"), ("should", "engine")),
        (changed("layout.tensor_parallel_size", 8), ("should", "cut")),
        (changed("replicas.0.gpus", ["0000:26:00.0"]), ("should", "place")),
        (changed("deployment.model.path", "/srv/c"), ("no", "model")),
        (changed("replicas.0.argv", ["--revision", "main"]), ("no", "model")),
        (changed("replicas.0.argv", ["--quantization", "fp8"]), ("no", "weights-format")),
    ],
)
def test_what_the_answers_must_be_follows_from_the_change(after, expected):
    found = compare_answers(PLAN, after, UNIT)
    assert (found.compare, found.rule) == expected
    assert found.because


def test_the_weightiest_change_decides():
    after = changed("deployment.engine.version", "0.34.0")
    after["deployment"]["model"]["name"] = "c/d"
    assert compare_answers(PLAN, after, UNIT).rule == "model"


def test_a_new_replica_has_nothing_to_be_compared_with():
    assert compare_answers(None, PLAN, UNIT).compare == "no"
    assert compare_answers({"replicas": []}, PLAN, UNIT).compare == "no"


def test_the_rules_end_with_a_default():
    rules = knowledge("rollout.yml")["compare"]["rules"]
    assert [rule["id"] for rule in rules][-1] == "default"
    assert all(set(rule) & {"fields", "flags", "env", "replica"} for rule in rules[:-1])


def told(**more):
    return {
        "plan": PLAN,
        "serving": [UNIT],
        "lock": None,
        "current": "20260722T101500Z-0f3a9c21",
        **more,
    }


def test_a_situation_is_read_from_what_the_host_said():
    lock = {"schema": "x", "owner": "ann", "since": "today", "out": []}
    would = {"changed": True, "restarted": [UNIT], "started": ["apiary-x.target", UNIT]}
    servers = {"x/gpu-001-0": {"state": "maint"}, "x/gpu-0010-0": {"state": "ready"}}
    found = situation_of("gpu-001", told(lock=lock), PLAN, would, servers)
    assert found.changed == (UNIT,)
    assert found.parked == (UNIT,)
    assert found.running == found.wanted
    assert found.kept == "20260722T101500Z-0f3a9c21"
    assert found.lock.owner == "ann"


@pytest.mark.parametrize(
    ("state", "out", "parked"),
    [("ready", [], ()), ("drain", [], (UNIT,)), ("maint", [], (UNIT,)), ("drain", [UNIT], ())],
)
def test_what_somebody_else_took_out_is_parked(state, out, parked):
    lock = {"owner": "ann", "since": "today", "out": out}
    servers = {"x/gpu-001-0": {"state": state}}
    found = situation_of("gpu-001", told(lock=lock), PLAN, {"changed": False}, servers)
    assert found.parked == parked


def test_a_fresh_host_runs_nothing():
    found = situation_of("gpu-001", told(plan=None, serving=[]), PLAN, {"changed": True}, {})
    assert found.running == ()
    assert found.files


@pytest.mark.parametrize("replicas", [[{}], [{"unit": UNIT, "port": "x", "gpus": []}], ["a"]])
def test_a_plan_that_is_none_is_refused(replicas):
    with pytest.raises(ApiaryError, match="ROLLOUT-PLAN"):
        situation_of("gpu-001", told(plan={"replicas": replicas}), PLAN, {}, {})
