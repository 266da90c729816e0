# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The self-test's server: what it answers, when, and how it ends."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import mock as bench_mock

from support.bench.load_servers import mock

PROGRAM = "load.mock"


def ask(url: str, path: str, document: Any = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    method = "GET" if document is None else "POST"
    body = None if document is None else json.dumps(document)
    connection.request(method, path, body)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


def events(data: bytes) -> list[Any]:
    texts = [one.removeprefix(b"data: ") for one in data.split(b"\n\n") if one]
    assert texts.pop() == b"[DONE]"
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_a_stream_has_a_chunk_for_each_token_and_the_usage(tokens: int) -> None:
    requested = {
        **{"prompt": [5, 6, 7], "max_tokens": tokens, "stream": True},
        "stream_options": {"include_usage": True},
    }
    with mock() as url:
        status, data = ask(url, "/v1/completions", requested)
    chunks = events(data)
    assert status == 200
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]] == (
        [None] * (tokens - 1) + ["length"]
    )
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        **{"prompt_tokens": 3, "completion_tokens": tokens},
        "total_tokens": tokens + 3,
    }


def test_a_chat_tells_its_role_first() -> None:
    content = [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": "x"}}]
    requested = {
        **{"messages": [{"role": "user", "content": content}], "max_completion_tokens": 3},
        **{"stream": True, "stream_options": {"include_usage": True}},
    }
    with mock() as url:
        chunks = events(ask(url, "/v1/chat/completions", requested)[1])
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert [one["choices"][0]["delta"] for one in chunks[1:-1]] == [{"content": " word"}] * 3
    assert chunks[-1]["usage"]["prompt_tokens"] == 6


def test_without_a_stream_the_answer_is_whole() -> None:
    with mock() as url:
        status, data = ask(url, "/v1/completions", {"prompt": "a b", "max_tokens": 2})
    document = json.loads(data)
    assert (status, document["choices"][0]["text"]) == (200, " word word")
    assert document["usage"]["prompt_tokens"] == 2


def test_what_clients_ask_before_a_load() -> None:
    with mock() as url:
        assert ask(url, "/health")[0] == 200
        assert json.loads(ask(url, "/v1/models")[1])["data"][0]["id"] == "m"
        first = json.loads(ask(url, "/tokenize", {"prompt": "one two one"})[1])
        assert json.loads(ask(url, "/tokenize", {"prompt": "one two one"})[1]) == first
        assert first["count"] == 3
        assert first["tokens"][0] == first["tokens"][2] != first["tokens"][1]
        assert ask(url, "/metrics")[0] == 404
        assert ask(url, "/v1/completions", [1])[0] == 400
        ask(url, "/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True})
        told = json.loads(ask(url, "/stats")[1])
    assert told["requests"] == 1
    assert told["late_max"] >= told["late_p90"] >= 0


def test_it_is_never_early() -> None:
    requested = {"prompt": "a", "max_tokens": 4, "stream": True}
    with mock(ttft=0.06, itl=0.02) as url:
        began = time.perf_counter()
        ask(url, "/v1/completions", requested)
        assert time.perf_counter() - began >= 0.06 + 3 * 0.02
        began = time.perf_counter()
        ask(url, "/v1/completions", {**requested, "stream": False})
        assert time.perf_counter() - began >= 0.06 + 3 * 0.02


def test_the_program_prints_its_port_and_ends_with_its_stdin() -> None:
    root = str(Path(bench_mock.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", PROGRAM, "--ttft", "0", "--itl", "0", "--model", "m"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": root},
    )
    assert process.stdin
    assert process.stdout
    port = int(process.stdout.readline())
    assert ask(f"http://127.0.0.1:{port}", "/health")[0] == 200
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()
