# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulator over HTTP: what streams, what is counted, and that it ends."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[1] / "lab"


@pytest.fixture(scope="module")
def server():
    argv = [sys.executable, "-m", "engine_simulator", "serve", "--speed", "50", "--model", "lab"]
    with subprocess.Popen(argv, cwd=LAB, stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def ask(port, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def events(text):
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def prompt(first, tokens=64):
    return list(range(first, first + tokens))


def test_a_stream_has_a_piece_for_each_token_and_the_usage(server):
    requested = {"prompt": prompt(0), "max_tokens": 5, "stream": True}
    status, text = ask(
        server, "/v1/completions", {**requested, "stream_options": {"include_usage": True}}
    )
    *pieces, usage, end = events(text)
    assert (status, end) == (200, "[DONE]")
    assert [json.loads(piece)["choices"][0]["finish_reason"] for piece in pieces] == [
        *[None] * 4,
        "length",
    ]
    assert json.loads(usage)["usage"] == {
        "prompt_tokens": 64,
        "completion_tokens": 5,
        "total_tokens": 69,
    }


def test_a_chat_begins_with_its_role_and_a_whole_answer_has_all(server):
    messages = [{"role": "user", "content": "one two three"}]
    requested = {"messages": messages, "max_tokens": 2}
    _status, text = ask(server, "/v1/chat/completions", {**requested, "stream": True})
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events(text)[:-1]]
    assert deltas[0]["role"] == "assistant"
    assert len(deltas) == 3
    _status, text = ask(server, "/v1/chat/completions", requested)
    answer = json.loads(text)
    assert answer["choices"][0]["message"]["content"] == " word word"
    assert answer["usage"]["prompt_tokens"] == 3


def test_what_is_requested_before_a_load(server):
    assert ask(server, "/health")[0] == 200
    assert json.loads(ask(server, "/v1/models")[1])["data"][0]["id"] == "lab"
    assert json.loads(ask(server, "/tokenize", {"prompt": "a b a"})[1])["count"] == 3
    assert "version" in json.loads(ask(server, "/version")[1])
    assert ask(server, "/nothing")[0] == 404


def counter(server, name):
    text = ask(server, "/metrics")[1]
    lines = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
    return sum(float(line.split()[-1]) for line in lines)


def test_a_prompt_that_was_there_before_is_a_hit(server):
    requested = {"prompt": prompt(10_000), "max_tokens": 1}
    before = counter(server, "prefix_cache_hits_total")
    ask(server, "/v1/completions", requested)
    assert counter(server, "prefix_cache_hits_total") == before
    ask(server, "/v1/completions", requested)
    # 63 of 64 may be hits, whole blocks of 16 are.
    assert counter(server, "prefix_cache_hits_total") == before + 48


def test_many_at_once_are_all_answered(server):
    before = counter(server, "generation_tokens_total")

    def one(number):
        requested = {"prompt": prompt(1000 * number), "max_tokens": 20, "stream": True}
        return len(events(ask(server, "/v1/completions", requested)[1]))

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(one, range(72))) == [21] * 72
    assert counter(server, "generation_tokens_total") == before + 72 * 20
    assert counter(server, "num_requests_running") == 0
