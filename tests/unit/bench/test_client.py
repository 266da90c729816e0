# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The load generator: against our mock, and against servers that misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import client as bench_client
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.command import builtin_argv
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Target,
    Workload,
)

from support.bench.load_servers import mock, request, scripted, stream, token, usage

GOOD = stream(*[token()] * 5, usage(5), "[DONE]")
LISTS = (
    *("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times", "latencies"),
    *("queue_times", "asked_input_lens", "asked_output_lens"),
)


def test_each_request_is_told_with_the_keys_of_vllm() -> None:
    with mock() as url:
        shard = bench_client.run(request(url, requests=20, load={"warmups": 3}))
    assert (shard["completed"], shard["failed"]) == (20, 0)
    assert {key: len(shard[key]) for key in LISTS} == dict.fromkeys(LISTS, 20)
    assert set(shard["input_lens"]) == {8}
    assert set(shard["output_lens"]) == {5}
    assert {len(gaps) for gaps in shard["itls"]} == {4}
    assert shard["duration"] > 0
    assert shard["warmup_errors"] == []
    for ttft, gaps, latency in zip(shard["ttfts"], shard["itls"], shard["latencies"], strict=True):
        assert latency == pytest.approx(ttft + sum(gaps))
    json.dumps(shard)


def test_times_are_not_shorter_than_the_servers() -> None:
    with mock(ttft=0.05, itl=0.01) as url:
        shard = bench_client.run(request(url, requests=4))
    assert min(shard["ttfts"]) >= 0.05
    assert min(shard["latencies"]) >= 0.05 + 4 * 0.01 - 0.001
    assert min(shard["queue_times"]) == max(shard["queue_times"]) == 0


@pytest.mark.parametrize(
    ("answer", "close", "error"),
    [
        (stream(*[token()] * 3, usage(3), "[DONE]"), False, "partial output: 3 of 5 tokens"),
        (stream(*[token()] * 6, usage(6), "[DONE]"), False, "long output: 6 of 5 tokens"),
        (stream(usage(0), "[DONE]"), False, "empty output: no token came"),
        (stream(*[token()] * 5, "[DONE]"), False, "the stream has no usage"),
        (stream(*[token()] * 5, usage(5)), False, "ended without [DONE] after 5 chunks"),
        (stream(*[token()] * 2, last=False), True, "closed before the answer's end after 2 chunks"),
        (b"", True, "closed before the answer's end"),
        (b"SSH-2.0-x\r\n", True, "no HTTP/1.1"),
        (stream(token(), '{"error":{"message":"out of memory"}}'), False, "out of memory"),
        (stream(token(), "{nonsense"), False, "no JSON"),
        (
            b"HTTP/1.1 503 Busy\r\nContent-Length: 31\r\n\r\n"
            + b'{"error":{"message":"too many"}}'[:31],
            False,
            "HTTP 503",
        ),
        (
            b'HTTP/1.1 400 Bad\r\nContent-Length: 25\r\n\r\n{"error":{"message":"x"}}',
            False,
            "HTTP 400: x",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", False, "empty output"),
    ],
)
def test_what_is_not_the_whole_output_is_an_error(answer: bytes, close: bool, error: str) -> None:
    def script(number: int) -> tuple[bytes, bool]:
        return (answer, close) if number == 0 else (GOOD, False)

    with scripted(script) as (url, _server):
        shard = bench_client.run(request(url, requests=4, load={"concurrency": 1}))
    assert (shard["completed"], shard["failed"]) == (3, 1)
    assert error in shard["errors"][0]
    assert (shard["ttfts"][0], shard["itls"][0], shard["latencies"][0]) == (0.0, [], 0.0)


def test_a_request_that_hangs_fails_at_its_timeout() -> None:
    def script(number: int) -> tuple[bytes, bool] | None:
        return None if number == 0 else (GOOD, False)

    with scripted(script) as (url, _server):
        shard = bench_client.run(request(url, requests=3, timeout_seconds=0.2))
    assert sorted(shard["errors"]) == ["", "", "timeout after 0.2 s"]


def test_nobody_listening_is_an_error_of_each_request() -> None:
    with scripted(bool) as (url, _server):
        pass
    shard = bench_client.run(request(url, requests=3))
    assert (shard["completed"], shard["failed"]) == (0, 3)
    assert set(shard["errors"]) == {"no connection: ECONNREFUSED"}


def test_a_kept_connection_that_the_server_closed_is_opened_again() -> None:
    with scripted(lambda number: (GOOD, True)) as (url, server):
        shard = bench_client.run(request(url, requests=5, load={"concurrency": 1}))
    assert (shard["completed"], server.connections) == (5, 5)


def test_connections_are_kept() -> None:
    with scripted(lambda number: (GOOD, False)) as (url, server):
        bench_client.run(request(url, requests=12, load={"concurrency": 3}))
    assert (server.connections, len(server.requests)) == (3, 12)


def test_lines_may_end_as_on_windows_and_usage_may_come_with_the_last_token() -> None:
    last = token()[:-1] + ',"usage":{"prompt_tokens":8,"completion_tokens":5}}'
    answer = stream(*[token()] * 4, last, "[DONE]", end="\r\n")
    with scripted(lambda number: (answer, False)) as (url, _server):
        shard = bench_client.run(request(url))
    assert shard["errors"] == [""] * 4
    assert {len(gaps) for gaps in shard["itls"]} == {4}


def bodies(server: Any) -> list[dict[str, Any]]:
    return [json.loads(one.partition(b"\r\n\r\n")[2]) for one in server.requests]


def test_what_is_requested_for_and_no_two_prompts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    with scripted(lambda number: (GOOD, False)) as (url, server):
        shard = bench_client.run(request(url + "/v1", requests=6, load={"warmups": 2}))
    requested = bodies(server)
    assert len({tuple(one["prompt"]) for one in requested}) == 8
    assert {len(one["prompt"]) for one in requested} == {8}
    assert all(10 <= number <= 500 for one in requested for number in one["prompt"])
    assert {key: value for key, value in requested[0].items() if key != "prompt"} == {
        **{"model": "m", "max_tokens": 5, "min_tokens": 5, "ignore_eos": True, "temperature": 0},
        **{"stream": True, "stream_options": {"include_usage": True}},
    }
    for one in server.requests:
        assert one.startswith(b"POST /v1/completions HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer secret-1\r\n" in one
    assert "secret-1" not in json.dumps(shard)


def test_equal_loads_make_equal_prompts_others_do_not() -> None:
    def prompts(**values: Any) -> Counter[tuple[int, ...]]:
        with scripted(lambda number: (GOOD, False)) as (url, server):
            bench_client.run(request(url, **values))
        return Counter(tuple(one["prompt"]) for one in bodies(server))

    first = prompts()
    assert prompts() == first
    for other in ({"load": {"seed": 2}}, {"load": {"repeat": 1}}, {"load": {"concurrency": 3}}):
        assert not prompts(**other) & first
    assert not prompts(shard=1, shards=2) & first


def test_conversations_build_on_themselves_and_keep_their_key() -> None:
    part = {"kind": "sessions", "turns": 3, "prefixes": 1, "prefix_tokens": 4}
    with mock() as url:
        shard = bench_client.run(request(url, requests=7, workload=part))
    # 8, then 5 of the answer and 4 new each time; the third conversation has one turn.
    assert Counter(shard["input_lens"]) == {8: 3, 17: 2, 26: 2}
    assert shard["input_lens"] == shard["asked_input_lens"]

    with scripted(lambda number: (GOOD, False)) as (url, server):
        bench_client.run(request(url, requests=6, workload=part, session_header="X-Key"))
    reported: dict[str, list[list[int]]] = {}
    for one, body in zip(server.requests, bodies(server), strict=True):
        (key,) = [line[7:] for line in one.decode().split("\r\n") if line.startswith("X-Key: ")]
        reported.setdefault(key, []).append(body["prompt"])
    assert [len(prompts) for prompts in reported.values()] == [3, 3]
    for first, second, third in reported.values():
        assert second[:8] == first
        assert third[:17] == second
    assert len({tuple(prompts[0][:4]) for prompts in reported.values()}) == 1


def test_chat_tells_its_answers_back_and_finds_its_lengths_by_the_servers_tokenizer() -> None:
    part = {"kind": "sessions", "turns": 2, "input_tokens": 60}
    with mock() as url:
        shard = bench_client.run(request(url, requests=4, workload=part, endpoint="chat"))
    assert shard["errors"] == [""] * 4
    # The answer's own frame, 4 tokens of the mock's template, is not known beforehand.
    assert Counter(shard["input_lens"]) == {60: 2, 60 + 5 + 60 + 4: 2}


def test_images_are_sent_beside_the_text() -> None:
    part = {"kind": "images", "images": 2, "image_pixels": [32, 16], "input_tokens": 30}
    with mock() as url:
        shard = bench_client.run(request(url, requests=3, workload=part))
    assert shard["errors"] == [""] * 3
    assert set(shard["input_lens"]) == {30}


def test_parts_of_a_mixed_workload_have_their_own_lengths() -> None:
    parts = [
        {"name": n, "input_tokens": i, "output_tokens": o}
        for n, i, o in (("a", 8, 5), ("b", 30, 9))
    ]
    with mock() as url:
        shard = bench_client.run(
            request(url, requests=10, workload={"kind": "mixed", "parts": parts})
        )
    pairs = Counter(zip(shard["input_lens"], shard["output_lens"], strict=True))
    assert pairs == {(8, 5): 5, (30, 9): 5}


def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    load = {"concurrency": 1, "request_rate": 200.0}
    with mock(ttft=0.05) as url:
        shard = bench_client.run(request(url, requests=8, load=load))
    # Eight arrive within 40 ms, one slot has each for 50: the last waits for seven.
    assert shard["queue_times"][-1] > 0.25
    assert shard["ttfts"][-1] >= shard["queue_times"][-1] + 0.05
    assert shard["start_times"] == sorted(shard["start_times"])
    spread = shard["start_times"][-1] - shard["start_times"][0]
    assert spread < 8 / 200


def test_shares_of_shards_sum_up() -> None:
    with mock() as url:
        shards = [
            bench_client.run(request(url, requests=7, shard=one, shards=3)) for one in range(3)
        ]
    assert [shard["completed"] for shard in shards] == [3, 2, 2]


def test_the_program_writes_a_result_or_says_why_not(tmp_path: Path) -> None:
    workload = Workload("w", input_tokens=8, output_tokens=5)
    load = Load("fixed", workload, requests=4, concurrency=2)
    with mock() as url:
        command = builtin_argv(load, Target((url,), "m"), 0, 1, str(tmp_path), "s.json")
        root = str(Path(bench_client.__file__).parents[1])
        known = {"@PYTHON@": sys.executable, "@PROGRAMS@": root}
        words = [known.get(one, one).replace("@PROGRAMS@", root) for one in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert json.loads((tmp_path / "s.json").read_text())["completed"] == 4
        assert os.listdir(tmp_path) == ["s.json"]

    words[-2] = '{"url": "http://127.0.0.1:1"}'
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "bench_client: missing in the request: load, model\n"


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown in the request: colour"):
        bench_client.run(request("http://127.0.0.1:1", colour="red"))
    with pytest.raises(ValueError, match="no http"):
        bench_client.run(request("ftp://127.0.0.1"))


def test_cached_prompt_tokens_are_told_where_the_server_does() -> None:
    reported = '"prompt_tokens_details":{"cached_tokens":6}'
    with_details = usage(5).replace('"usage":{', f'"usage":{{{reported},')
    answers = [stream(*[token()] * 5, end, "[DONE]") for end in (with_details, usage(5))]
    for answer, cached in zip(answers, ([6] * 4, [None] * 4), strict=True):
        with scripted(lambda _number, answer=answer: (answer, False)) as (url, _server):
            shard = bench_client.run(request(url, requests=4))
        assert shard["cached_tokens"] == cached


def test_a_trace_is_replayed_turn_by_turn() -> None:
    """A turn comes when it came, after the answer before it, and begins with all of that."""
    trace = [[0, 0.0, 20, 5], [1, 0.1, 9, 4], [0, 0.2, 40, 6], [0, 0.3, 12, 5]]
    work = {"kind": "trace", "turns": 2, "trace": trace}
    # Three gaps of 0.1 s and one more: ten a second.
    load = {"concurrency": None, "request_rate": 10.0}
    with mock() as url:
        asked = request(url, requests=4, workload=work, load=load)
        shard = bench_client.run(asked)
        halves = [bench_client.run({**asked, "shard": one, "shards": 2}) for one in (0, 1)]
    assert shard["errors"] == [""] * 4
    assert shard["input_lens"] == [20, 9, 40, 12]
    assert shard["output_lens"] == [5, 4, 6, 5]
    starts = [one - shard["start_times"][0] for one in shard["start_times"]]
    assert starts == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=0.02)
    assert [one["input_lens"] for one in halves] == [[20, 40, 12], [9]]


def test_a_turn_of_a_trace_repeats_the_one_before_and_its_answer() -> None:
    trace = [[0, 0.0, 8, 5], [0, 0.1, 20, 5], [0, 0.2, 8, 5]]
    work = {"kind": "trace", "turns": 2, "trace": trace}
    load = {"concurrency": None, "request_rate": 10.0}
    with scripted(lambda _number: (GOOD, False)) as (url, server):
        bench_client.run(request(url, requests=3, workload=work, load=load))
    first, second, third = (one["prompt"] for one in bodies(server)[-3:])
    assert (len(first), len(second), len(third)) == (8, 20, 8)
    assert second[:8] == first
    # Its beginning is lost, and nothing of it is cached.
    assert third != first
