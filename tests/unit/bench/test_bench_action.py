# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bench action as a playbook meets it: the load host is a host, the controller decides."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.modules import bench_level
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench, Price
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)

from support.bench.engine import engine
from support.demo import demo_plan
from support.modules import run_module
from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
KEY = "sk-planted-4711"
# One case of the play: what the action returns, be it a failure, goes to a file.
CASE = """
    - block:
        - apiary.instinct.bench: "{{{{ lookup('file', '{name}.json') | from_json }}}}"
          register: measured
      rescue:
        - ansible.builtin.set_fact:
            measured: "{{{{ ansible_failed_result }}}}"
      always:
        - save:
            content: "{{{{ measured | to_json }}}}"
            dest: {name}.result
      check_mode: {check}
"""
PLAY = """
- hosts: load-001
  gather_facts: false
  tasks:
"""
INVENTORY = """
load_hosts:
  hosts:
    load-001:
      ansible_connection: local
gpu_hosts:
  hosts:
    gpu-001:
      ansible_connection: local
      apiary_address: 127.0.0.1
      apiary_gpu_hour_price: 2.5 EUR
"""
WRONG = {
    "BENCH-UNREACHABLE": {"urls": ["http://127.0.0.1:1"], "dest": "none"},
    "BENCH-WORKLOAD": {"workload": "many"},
    "BENCH-CPUS": {"client_cpus": "all"},
    "BENCH-PRICE": {"gpu_hour_price": "2.1 and 3.4"},
    "BENCH-URL": {"urls": ["http://user:sk-planted-4711@127.0.0.1:1"], "dest": "none"},
    "BENCH-ASKED": {"requested": {"phases": ["open"], "request_rate": [float("inf")]}},
    "BENCH-OTHER": {"plans": ["plan.json"], "tokenizer": "/srv/models/x", "gpus": 4},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The results of every case by name, what the play printed, and its directory.

    A play is slow to begin, so that one run plays them all, and playbooks/bench.yml after them.
    """
    place = tmp_path_factory.mktemp("play")
    (place / "key").write_text(KEY)
    (place / "plan.json").write_text(dumps(demo_plan()))
    (place / "inventory.yml").write_text(INVENTORY)
    requested = {"phases": ["scaling"], "concurrency": [1]}
    quick = {
        "backend": "builtin",
        "workload": "16/4",
        "requested": requested,
        "rules": {"requests_least": 20, "warmup_most": 1},
        "self_test": False,
    }
    plan = demo_plan()
    name = plan.deployment.model.name
    with engine("--model", name) as url:
        replica = dataclasses.replace(plan.replicas[0], port=int(url.rpartition(":")[2]))
        (place / "artifacts/gpu-001").mkdir(parents=True)
        layout = dataclasses.replace(plan.layout, replicas=1)
        serving = dataclasses.replace(plan, layout=layout, replicas=(replica,))
        (place / "artifacts/gpu-001/plan.json").write_text(dumps(serving))
        cases = {
            "check": {"urls": ["http://127.0.0.1:1"], "dest": "none"},
            "first": {
                "key_file": str(place / "key"),
                "plans": ["plan.json"],
                "environment": {"note": "x"},
                "tokenizer": "/srv/models/x",
            },
            "again": {
                "requested": {**requested, "engine_runs": 2},
                "plans": ["plan.json"],
                "tokenizer": "/srv/models/x",
            },
            **WRONG,
        }
        for name, changes in cases.items():
            options = {
                "name": "small",
                "dest": "out",
                "urls": [url],
                "metrics": [f"{url}/metrics"],
                **quick,
                **changes,
            }
            (place / f"{name}.json").write_text(json.dumps(options))
        tasks = [CASE.format(name=name, check=str(name == "check").lower()) for name in cases]
        (place / "play.yml").write_text(PLAY + "".join(tasks))
        done = run_playbook(
            *("-i", "inventory.yml", "-vvv", "play.yml", ROOT / "playbooks/bench.yml"),
            *("-e", json.dumps({f"bench_{key}": value for key, value in quick.items()})),
            *("-e", json.dumps({"bench_become": False, "bench_gpu_metrics": "none"})),
            cwd=place,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    results = {name: json.loads((place / f"{name}.result").read_text()) for name in cases}
    return SimpleNamespace(results=results, reported=done.stdout + done.stderr, place=place)


def test_a_play_measures_and_keeps_everything(played):
    result = played.results["first"]
    assert result["done"] is True
    assert result["changed"] is False
    assert json.loads((played.place / result["path"]).read_text()) == result["bench"]
    bench = from_document(Bench, result["bench"], "result")
    level = bench.levels[-1]
    assert level.measured.completed == level.load.requests
    assert (played.place / "out" / level.raw).is_file()
    assert result["summary"][-1].startswith("scaling: 16/4, 1 concurrent: ")
    assert "scaling: 16/4, 1 concurrent, 20 requests" in played.reported


def test_plans_say_what_serves(played):
    bench = from_document(Bench, played.results["first"]["bench"], "result")
    assert bench.environment["layout"] == "DP2/TP4/EP4"
    assert bench.environment["note"] == "x"
    assert bench.environment["rules"] == {"requests_least": 20, "warmup_most": 1}
    # What serves is told by the engine, whatever the plan says.
    engine = bench.environment["engine"]
    assert engine["planned_version"] == demo_plan().deployment.engine.version
    assert engine["version"] != engine["planned_version"]
    told = [finding.code for finding in bench.findings]
    assert {"BENCH-PLAN-VERSION", "BENCH-THRESHOLD", "BENCH-UNPROVEN"} <= set(told)
    assert bench.target.gpus == 8
    assert bench.target.tokenizer == "/srv/models/x"


def test_nobody_says_the_key(played):
    assert KEY not in played.reported
    assert KEY not in json.dumps(played.results)


def test_a_further_engine_run_is_requested_for_after_what_is_kept(played):
    again = played.results["again"]
    assert again["done"] is False
    assert again["next_engine_run"] == 1
    assert "(measured before)" in played.reported


@pytest.mark.parametrize("code", WRONG)
def test_what_is_wrong_fails_the_task_with_its_finding(played, code):
    result = played.results[code]
    assert result["failed"] is True
    assert [one["code"] for one in result["findings"]] == [code]


def test_the_playbook_measures_what_the_plans_say(played):
    (path,) = (played.place / "artifacts/bench/qwen3-235b").glob("*/bench.json")
    bench = from_document(Bench, json.loads(path.read_text()), "bench.json")
    assert bench.levels[-1].measured.completed == bench.levels[-1].load.requests
    assert bench.target.urls[0].startswith("http://127.0.0.1:")
    assert bench.target.metrics == (f"{bench.target.urls[0]}/metrics",)
    assert bench.target.gpus == 4
    assert bench.environment["hosts"] == ["gpu-001"]
    assert len(bench.environment["gpu_addresses"]) == 4
    assert bench.price == Price(2.5, "EUR")
    assert "BENCH-SAME-HOST" in played.reported
    assert path.with_name("raw").is_dir()


def test_check_mode_measures_nothing(played):
    result = played.results["check"]
    assert result["changed"] is False
    assert "bench" not in result
    assert not (played.place / "none").exists()


def request(**changes):
    return {
        "do": "inspect",
        "urls": ["http://127.0.0.1:1"],
        "metrics": [],
        "model": "",
        "client": [],
        "http_seconds": 5,
        "answer_seconds": 5,
        **changes,
    }


def test_the_module_hands_back_what_it_saw(capsys, tmp_path):
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    result = run_module(bench_level, capsys, request=request(), key_file=str(key))
    seen = bench_run.unpacked(result["packed"])
    assert seen["servers"][0]["models"][0] is None
    assert seen["host"]["cores"] >= 1
    assert "packed" not in run_module(bench_level, capsys, check_mode=True, request=request())


def test_the_module_fails_where_nothing_can_be_started(capsys, monkeypatch, tmp_path):
    def refuse(_request):
        raise bench_run.BenchError("no mock here")

    monkeypatch.setattr(bench_level, "run", refuse)
    assert run_module(bench_level, capsys, request=request())["msg"] == "no mock here"
    missing = run_module(bench_level, capsys, request=request(), key_file=str(tmp_path / "none"))
    assert missing["failed"] is True
    assert "FileNotFoundError" in missing["msg"]
