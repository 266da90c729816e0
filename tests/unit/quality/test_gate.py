# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica over HTTP, from its battery to the gate of a rollout."""

import http.server
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.action import rollout
from ansible_collections.apiary.instinct.plugins.module_utils.quality import QualityError, measure
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import plan_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.battery import (
    battery,
    read_reference,
    request_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.evaluate import (
    answers_of,
    facts_of,
    judged,
    outliers,
    quality,
)

from apiary.app.cli import main

PLAN = Path(__file__).parents[2] / "golden/demo/etc/apiary/qwen3-235b/plan.json"
DATE = "2026-11-28T12:00:00Z"
ITEMS = battery()
RIGHT = {item.body["prompt"]: item.right[0] for item in ITEMS if item.group == "questions"}


class Replica(http.server.BaseHTTPRequestHandler):
    """An engine that knows the answers; the server's ``shift`` makes its model another one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        card = {"id": "m", "max_model_len": 512}
        self.answer({"data": [card]} if self.path == "/v1/models" else {"version": "0.32.0"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shift = self.server.shift
        if self.server.hostile is not None:
            self.answer(self.server.hostile)
        elif self.path == "/tokenize":
            text = body.get("prompt") or json.dumps(body["messages"])
            self.answer({"tokens": [ord(letter) for letter in text]})
        elif "messages" in body:
            self.answer({"choices": [{"message": {"content": "no idea"}, "logprobs": None}]})
        elif "prompt_logprobs" in body:
            row = {"7": {"logprob": -1.0 - shift}}
            self.answer({"choices": [{"text": "", "prompt_logprobs": [None, row, row]}]})
        else:
            if isinstance(body["prompt"], list):
                self.server.longest = max(self.server.longest, len(body["prompt"]))
                text = "".join(map(chr, body["prompt"])).rpartition(" door is ")[0]
                text = text.rpartition(" door is ")[2] if " door is " in text else ""
            else:
                text = RIGHT.get(body["prompt"], "and so on")
            told = {"tokens": [text], "token_logprobs": [-0.5 - shift]}
            self.answer({"choices": [{"text": text, "logprobs": told}]})

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    # All that ask at once, on a machine that is too busy to accept them.
    request_queue_size = 128


@pytest.fixture
def replica():
    server = Server(("127.0.0.1", 0), Replica)
    server.daemon_threads = True
    server.shift, server.hostile, server.longest = 0.0, None, 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_item_has_an_answer_and_prompts_fill_the_context(replica):
    measured = measure(request_of(replica.url, ITEMS))
    assert measured["answers"].keys() == {item.id for item in ITEMS}
    assert not [one for one in measured["answers"].values() if one.get("problem")]
    assert (measured["model"], measured["engine"]) == ("m", "0.32.0")
    assert replica.longest == 512 - 16


def test_time_that_runs_out_is_told(replica):
    measured = measure(request_of(replica.url, ITEMS) | {"battery_seconds": -1})
    assert {one["problem"] for one in measured["answers"].values()} >= {
        "no time was left for the request"
    }


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1", "gpu-001:8000", "http://x:y", "ftp://x", "http://a b:80", "http://[::1"],
)
def test_nobody_there_is_a_refusal(url):
    with pytest.raises(QualityError, match=r"no answer|no URL"):
        measure(request_of(url, ITEMS))


def test_a_key_that_no_header_takes_is_not_shown(replica):
    with pytest.raises(QualityError) as told:
        measure(request_of(replica.url, ITEMS), "sk-plan\nted")
    assert "plan" not in str(told.value)


@pytest.fixture
def judge(replica):
    plan = plan_of(json.loads(PLAN.read_text(encoding="utf-8")), "plan")
    units = [one.unit for one in plan.replicas]

    def run(reference, *shifts):
        results = []
        for unit, shift in zip(units, shifts, strict=False):
            replica.shift = shift
            results.append({"unit": unit, "quality": measure(request_of(replica.url, ITEMS))})
        return judged(answers_of("gpu-001", [plan], results, DATE), reference, {})

    return run


@pytest.fixture
def reference(replica):
    """Of a replica of the plan, as `apiary quality --plan` writes it."""
    facts = facts_of(plan_of(json.loads(PLAN.read_text(encoding="utf-8")), "plan"))
    own = {name: facts[name] for name in ("recipe", "gpu")}
    return quality(ITEMS, measure(request_of(replica.url, ITEMS)), DATE, **own)


def test_answers_are_held_against_the_reference_of_their_model(judge, reference):
    assert judge(reference, 0.0) == ()
    findings = judge(reference, 0.1)
    assert [one.code for one in findings] == ["QUALITY-WORSE"]
    # The GPUs are named: one of them may be what is wrong.
    assert "0000:" in findings[0].subject
    other = judge(replace(reference, model="other"), 0.1)
    assert [one.code for one in other] == ["QUALITY-FIRST-RUN"]


def test_a_replica_unlike_its_sibling_is_told_without_a_reference(judge, reference):
    findings = judge(replace(reference, model="other"), 0.0, 0.1)
    assert {one.code for one in findings} == {"QUALITY-FIRST-RUN", "QUALITY-SIBLING"}


def test_replicas_of_another_model_make_siblings_no_more_alike(reference):
    apart = {
        key: replace(one, logprobs=tuple(x - 1 for x in one.logprobs))
        for key, one in reference.answers.items()
    }
    asked = {"a": reference, "b": replace(reference, answers=apart)}
    asked |= {name: replace(reference, model=name) for name in ("m2", "m3", "m4")}
    assert {one.subject for one in outliers(asked, ITEMS)} == {"a", "b"}


def test_a_reference_without_answers_is_refused(judge, reference):
    with pytest.raises(ApiaryError, match="QUALITY-REFERENCE"):
        judge(replace(reference, answers={}), 0.0)


def test_a_result_without_answers_passes_no_gate():
    plan = plan_of(json.loads(PLAN.read_text(encoding="utf-8")), "plan")
    result = {"unit": plan.replicas[0].unit, "quality": None}
    with pytest.raises(ApiaryError, match="QUALITY-NOT-ASKED"):
        answers_of("gpu-001", [plan], [result], DATE)
    assert answers_of("gpu-001", [plan], [{"skipped": True}], DATE) == {}


def test_a_reference_of_other_weights_is_refused(reference):
    """The plan's path is named by a commit, or a link on the host leads to one."""
    document = json.loads(PLAN.read_text(encoding="utf-8"))
    document["deployment"]["model"]["path"] += "/" + "a" * 40
    plan = plan_of(document, "plan")
    assert facts_of(plan)["revision"] == "a" * 40
    answers = {name: to_document(one) for name, one in reference.answers.items()}
    measured = {"model": "m", "engine": None, "max_model_len": None, "seconds": 1.0}
    result = {"unit": plan.replicas[0].unit, "quality": {**measured, "answers": answers}}
    result["quality"]["revision"] = "b" * 40
    now = answers_of("gpu-001", [plan], [result], DATE)
    judged(now, replace(reference, revision="b" * 40), {})
    with pytest.raises(ApiaryError, match="QUALITY-BATTERY"):
        judged(now, replace(reference, revision="a" * 40), {})


def test_the_gate_of_a_rollout_fails_where_answers_are_worse(replica, reference, tmp_path):
    """From the module on the host to the action on the controller."""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    unit, path = plan["replicas"][0]["unit"], tmp_path / "x.json"
    action = rollout.ActionModule.__new__(rollout.ActionModule)
    arguments = {"quality": str(path), "plans": [plan]}

    known = {"gpu-001": {}, "gpu-002": {}}
    hosts = {"hostvars": known, "ansible_play_hosts_all": list(known)}

    def judge(shift, host="gpu-001"):
        replica.shift = shift
        request = action._quality(host, {**arguments, "results": []}, hosts)["smoke"]["battery"]
        results = [{"unit": unit, "quality": measure({**request, "url": replica.url})}]
        answer = action._quality(host, {**arguments, "results": results}, hosts)
        # As `register` keeps it.
        hosts["hostvars"][host]["__judged"] = json.loads(json.dumps(answer))
        return answer["findings"]

    # Without a reference there is no battery, and nothing to compare.
    none = action._quality("gpu-001", {"quality": None, "plans": [plan], "results": [{}]}, hosts)
    assert none["findings"] == []
    assert "battery" not in none["smoke"]
    # Before anything is drained.
    with pytest.raises(ApiaryError, match="FILE-UNREADABLE"):
        rollout._smoke(arguments)
    path.write_text(dumps(replace(reference, battery="older")), encoding="utf-8")
    with pytest.raises(ApiaryError, match="QUALITY-BATTERY"):
        rollout._smoke(arguments)
    path.write_text(dumps(reference), encoding="utf-8")
    assert judge(0.0) == []
    with pytest.raises(ApiaryError, match="QUALITY-WORSE"):
        judge(0.1)
    assert judge(0.0) == []
    # After a change of the recipe more may differ from the reference, but not from the host before.
    path.write_text(dumps(replace(reference, recipe="before")), encoding="utf-8")
    assert judge(0.0, "gpu-002") == []
    with pytest.raises(ApiaryError, match="QUALITY-SIBLING"):
        judge(0.1, "gpu-002")
    hosts["hostvars"]["gpu-001"].clear()
    assert judge(0.1, "gpu-002") == []


def moved(one, by):
    """Return a measurement all of whose log probabilities are moved."""
    answers = {
        key: replace(answer, logprobs=tuple(x - by for x in answer.logprobs))
        for key, answer in one.answers.items()
    }
    return replace(one, answers=answers)


def test_a_replica_that_passed_before_fails_no_other_one(reference):
    """Of a change within the wide limit, so that only siblings show which one is bad."""
    known = replace(reference, recipe="before")
    passed = {f"gpu-001, {number}": reference for number in range(1, 9)}
    bad = moved(reference, 0.1)
    findings = judged({"gpu-002, 1": reference}, known, {**passed, "gpu-001, 3": bad})
    assert [(one.subject, one.severity) for one in findings] == [("gpu-001, 3", "warning")]
    findings = judged({"gpu-002, 1": bad}, known, passed)
    assert [(one.subject, one.severity) for one in findings] == [("gpu-002, 1", "error")]


@pytest.fixture
def rolled(reference, tmp_path):
    """Return what evaluates steps of a rollout of a new recipe; hosts' answers stay registered."""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    path = tmp_path / "reference.json"
    path.write_text(dumps(replace(reference, recipe="before")), encoding="utf-8")
    action = rollout.ActionModule.__new__(rollout.ActionModule)
    names = ["gpu-001", "gpu-002", "gpu-003"]
    variables = {"hostvars": {name: {} for name in names}, "ansible_play_hosts_all": names}

    def step(host, place, by=0.0, **facts):
        measured = to_document(moved(reference, by))
        fields = ("model", "engine", "max_model_len", "seconds", "answers")
        result = {name: measured[name] for name in fields} | {"revision": None}
        results = [{"unit": plan["replicas"][place]["unit"], "quality": result}]
        arguments = {"quality": str(path), "plans": [{**plan, **facts}], "results": results}
        answer = action._quality(host, arguments, variables)
        variables["hostvars"][host]["__judged"] = json.loads(json.dumps(answer))
        return answer["findings"]

    return step


def test_replicas_of_one_host_are_siblings_step_by_step(rolled):
    """Each step replaces one of them."""
    assert rolled("gpu-001", 0) == []
    with pytest.raises(ApiaryError, match="QUALITY-SIBLING") as failed:
        rolled("gpu-001", 1, 0.1)
    assert ["-1.service" in one.subject for one in failed.value.findings] == [True]


def test_siblings_are_those_of_the_first_host_that_has_any(rolled):
    """Hosts of another GPU model before it are none."""
    assert rolled("gpu-001", 0, gpu_model="MI300X") == rolled("gpu-002", 0) == []
    with pytest.raises(ApiaryError, match="QUALITY-SIBLING"):
        rolled("gpu-003", 0, 0.1)


@pytest.mark.parametrize("told", [{"x": 1}, [1], {"answers": 3, "model": "m"}, "text"])
def test_what_a_host_reports_is_checked(told):
    plan = plan_of(json.loads(PLAN.read_text(encoding="utf-8")), "plan")
    results = [{"unit": plan.replicas[0].unit, "quality": told}]
    with pytest.raises(ApiaryError, match=r"QUALITY-NOT-ASKED|DOC-"):
        answers_of("gpu-001", [plan], results, DATE)


def test_the_command_keeps_a_reference_and_holds_answers_against_it(replica, tmp_path, capsys):
    name = str(tmp_path / "quality.json")
    assert main(["quality", "--url", replica.url, "--write-reference", name]) == 0
    assert "QUALITY-FIRST-RUN" in capsys.readouterr().err
    assert main(["quality", "--url", replica.url, "--reference", name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdicts"][0]["verdict"] == "same"
    replica.shift = 0.1
    assert main(["quality", "--url", replica.url, "--reference", name]) == 1
    told = capsys.readouterr()
    assert "QUALITY-WORSE" in told.err
    assert "text drift" in told.out
    reference = read_reference(Path(name).read_text(encoding="utf-8"), name)
    Path(name).write_text(dumps(replace(reference, model="other")), encoding="utf-8")
    assert main(["quality", "--url", replica.url, "--reference", name]) == 1
    assert "QUALITY-BATTERY" in capsys.readouterr().err


def test_a_replica_that_answers_nonsense_is_told(replica, capsys):
    replica.hostile = {"choices": [{"text": 5, "message": {"content": [1]}}], "tokens": ["x"]}
    assert main(["quality", "--url", replica.url]) == 1
    assert "QUALITY-UNANSWERED" in capsys.readouterr().err
