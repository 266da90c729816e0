# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import http.server
import json
import ssl
import threading
import time

import pytest
from ansible_collections.apiary.instinct.plugins.modules import replica_smoke
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    knowledge,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.battery import (
    battery,
    request_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.web_keys import replica_certificate

from support.modules import run_module

UNIT = "apiary-x-0.service"
KEY = "sk-planted-4711"
FACTS = to_document(knowledge("rollout.yml")["smoke"])
PROMPTS = [
    {"id": "count", "text": "One, two,", "max_tokens": 16},
    {"id": "capital", "text": "The capital", "max_tokens": 16},
]


class Replica(http.server.BaseHTTPRequestHandler):
    """An engine that answers as the test has it."""

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        self.server.asked.append((body, self.headers.get("Authorization")))
        answer = self.server.answer(body)
        if isinstance(answer, int):
            self.send_error(answer)
            return
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload) + self.server.missing))
        self.end_headers()
        if body.get("stream", False):
            time.sleep(self.server.delay)
        self.wfile.write(payload)

    def log_message(self, *_words):
        """Say nothing."""


def stream(*pieces, end=b"data: [DONE]\n\n"):
    events = [{"choices": [{"text": piece, "finish_reason": None}]} for piece in pieces]
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events) + end


def usual(body):
    """The answer of a sound engine: the same for the same prompt."""
    if body.get("stream", False):
        return stream(" three", " four")
    return {"choices": [{"text": f"{body['prompt']} and so on", "finish_reason": "length"}]}


@pytest.fixture
def replica():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Replica)
    server.daemon_threads = True
    server.asked, server.answer, server.missing, server.delay = [], usual, 0, 0.0
    server.tls = False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def weights(tmp_path):
    """A directory as weights are published: `current` leads to a commit."""
    commit = tmp_path / ("c0ffee00" * 5)
    commit.mkdir()
    (tmp_path / "current").symlink_to(commit.name)
    return tmp_path / "current"


@pytest.fixture
def ask(replica, capsys, weights):
    def ask(port=None, address="127.0.0.1", secrets=(), prompts=PROMPTS, limits=None, **more):
        argv = more.pop("argv", ["vllm", "serve", "a/b"])
        deployment = {
            "name": "x",
            "listen_address": address,
            "model": {"name": "a/b", "path": str(weights)},
            "secrets": list(secrets),
            "tls": bool(replica.tls),
        }
        told = {
            "plan": {
                "deployment": deployment,
                "replicas": [
                    {"unit": UNIT, "port": port or replica.server_address[1], "argv": argv}
                ],
            },
            "unit": UNIT,
            "smoke": {
                "prompts": prompts,
                "timeout_seconds": 5,
                "limits": FACTS["limits"] | (limits or {}),
            },
            **more,
        }
        return run_module(replica_smoke, capsys, **told)

    return ask


def noted(result):
    """What a baseline is remembered by."""
    return {name: result[name] for name in ("answers", "stable", "first_token_seconds")}


def codes(result):
    return {(one["code"], one["severity"]) for one in result["findings"]}


def test_a_sound_replica_passes(ask, replica):
    done = ask(address="0.0.0.0")
    assert not done["changed"]
    assert done["findings"] == []
    assert done["answers"]["count"] == "One, two, and so on"
    assert done["first_token_seconds"] < 5
    assert [body.get("stream", False) for body, _key in replica.asked] == [False, False, True]


def test_prompts_are_asked_greedily(ask, replica):
    ask()
    for body, _key in replica.asked:
        assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 0, 16)
        assert body["model"] == "a/b"


def test_the_facts_fit_the_module(ask):
    done = ask(smoke=FACTS)
    assert len(done["answers"]) == len(FACTS["prompts"])


def test_a_baseline_is_asked_twice(ask, replica):
    done = ask(baseline=True)
    assert done["stable"] is True
    assert len(replica.asked) == 5


def test_the_same_answers_pass(ask):
    assert ask(before=noted(ask(baseline=True)))["findings"] == []


@pytest.mark.parametrize(
    ("compare", "severity"), [("must", "error"), ("should", "warning"), ("no", None)]
)
def test_other_answers_are_judged_by_what_the_change_is(ask, compare, severity):
    before = noted(ask(baseline=True))
    before["answers"]["count"] = "One, two, three"
    done = ask(before=before, compare=compare, because="for a reason")
    assert codes(done) == ({("ROLLOUT-SMOKE-ANSWER", severity)} if severity else set())
    assert bool(done.get("failed")) == (severity == "error")
    if severity == "error":
        assert "for a reason" in done["msg"]
        assert "prompt count" in done["msg"]


def test_a_model_that_does_not_repeat_itself_is_only_warned_of(ask, replica):
    numbers = iter(range(99))
    replica.answer = lambda body: (
        usual(body)
        if body.get("stream", False)
        else {"choices": [{"text": str(next(numbers)), "finish_reason": "stop"}]}
    )
    before = noted(ask(baseline=True))
    assert before["stable"] is False
    assert codes(ask(before=before)) == {("ROLLOUT-SMOKE-ANSWER", "warning")}


@pytest.mark.parametrize(
    ("whole", "streamed", "said"),
    [
        (500, None, "HTTP 500"),
        (b"not json", None, "not JSON"),
        ({"choices": []}, None, "no completion"),
        ({"choices": [{"text": "", "finish_reason": "abort"}]}, None, "ended with 'abort'"),
        (None, b"", "without [DONE]"),
        (None, stream("a", end=b""), "without [DONE]"),
        (None, stream(), "has no token"),
        (None, b'data: {"error": {"message": "dead"}}\n\n', "ended with an error"),
        (None, b"data: x\n\n", "no stream of completions"),
    ],
)
def test_an_answer_that_is_none_fails(ask, replica, whole, streamed, said):
    replica.answer = lambda body: (
        (streamed if streamed is not None else usual(body))
        if body.get("stream", False)
        else (whole if whole is not None else usual(body))
    )
    done = ask()
    assert done["failed"]
    assert codes(done) == {("ROLLOUT-SMOKE-FAILED", "error")}
    assert said in done["msg"]
    assert "Traceback" not in done["msg"]


@pytest.mark.parametrize("argv", [["serve"], ["serve", "--tool-call-parser=hermes"]])
def test_tool_calls_are_requested_where_the_replica_has_a_parser(ask, monkeypatch, argv):
    requested = []

    def measure(request, key):
        requested.extend(item["group"] for item in request["items"])
        return {"model": "a/b"}

    monkeypatch.setattr(replica_smoke, "measure", measure)
    done = ask(smoke={**FACTS, "battery": request_of("", battery(tools=True))}, argv=argv)
    assert ("tools" in requested) == (len(argv) == 2)
    assert "questions" in requested
    assert done["quality"] == {"model": "a/b", "revision": "c0ffee00" * 5}


def test_one_that_takes_no_battery_fails(ask):
    done = ask(smoke={**FACTS, "battery": request_of("", ())})
    assert codes(done) == {("QUALITY-NOT-ASKED", "error")}


def test_an_answer_that_breaks_off_fails(ask, replica):
    replica.missing = 10
    assert codes(ask()) == {("ROLLOUT-SMOKE-FAILED", "error")}


def test_a_replica_that_does_not_listen_fails(ask):
    done = ask(port=1)
    assert "no answer" in done["msg"]


def test_a_baseline_of_a_broken_replica_is_a_warning(ask, replica):
    replica.answer = lambda _body: 500
    done = ask(baseline=True)
    assert not done.get("failed")
    assert codes(done) == {("ROLLOUT-SMOKE-FAILED", "warning")}
    assert done["answers"] == {}
    replica.answer = usual
    assert ask(before=noted(done))["findings"] == []


def test_a_late_first_token_fails(ask, replica):
    replica.delay = 0.3
    done = ask(limits={"first_token_seconds": 0.1})
    assert codes(done) == {("ROLLOUT-SMOKE-SLOW", "error")}


def test_a_first_token_later_than_before_is_a_warning(ask, replica):
    before = noted(ask(baseline=True)) | {"first_token_seconds": 0.01}
    replica.delay = 0.3
    limits = {"slower_factor": 3, "slower_least_seconds": 0.1}
    assert codes(ask(before=before, limits=limits)) == {("ROLLOUT-SMOKE-SLOW", "warning")}
    assert ask(before=before)["findings"] == []  # a few tenths are noise


@pytest.fixture
def keyed(ask, tmp_path):
    """Ask a replica whose key is in a file of that content; None for no file."""

    def keyed(content):
        path = tmp_path / "x/credentials/VLLM_API_KEY"
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content.encode())
        return ask(secrets=["VLLM_API_KEY"], directory=str(tmp_path))

    return keyed


def test_the_key_is_read_on_the_host_and_told_to_nobody(keyed, replica):
    done = keyed(f"{KEY}\n")
    assert {key for _body, key in replica.asked} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(done)
    replica.answer = lambda _body: 401
    assert KEY not in json.dumps(keyed(f"{KEY}\n"))


def test_a_key_that_no_header_can_have_is_told_and_not_shown(keyed):
    done = keyed(f"{KEY}\rx")
    assert ("ROLLOUT-SMOKE-FAILED", "error") in codes(done)
    assert KEY not in json.dumps(done)


def test_a_key_that_cannot_be_read_is_told(keyed):
    assert "cannot be read: No such file or directory" in keyed(None)["msg"]


def test_one_that_speaks_tls_is_verified_by_the_host_s_own_file(ask, replica, tmp_path):
    place = tmp_path / "x/credentials"
    place.mkdir(parents=True)
    pem = place / "x.pem"
    pem.write_text(replica_certificate(str(tmp_path / "web"), "gpu-001", "x", []))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, pem)
    replica.socket = context.wrap_socket(replica.socket, server_side=True)
    replica.tls = True
    assert ask(directory=str(tmp_path))["findings"] == []
    # Signed by an authority that nobody knows here.
    pem.write_text(replica_certificate(str(tmp_path / "other"), "gpu-001", "x", []))
    assert codes(ask(directory=str(tmp_path))) == {("ROLLOUT-SMOKE-FAILED", "error")}
    pem.unlink()
    assert codes(ask(directory=str(tmp_path))) == {("ROLLOUT-SMOKE-FAILED", "error")}
