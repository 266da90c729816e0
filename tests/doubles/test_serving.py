# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the running double answers, and what it counts."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

CHAT = {"model": "Q", "messages": [{"role": "user", "content": "hello bees"}]}
REPLY = "you said: hello bees"


@pytest.fixture
def served(start):
    return start("--served-model-name", "Q", "alias", "--tensor-parallel-size", "4").ready()


def events(running, path, body):
    """Return the parsed events of a stream and whether it was closed by [DONE]."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request("POST", path, json.dumps({**body, "stream": True}))
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    data = [line[6:] for line in answer.read().decode().splitlines() if line]
    connection.close()
    return [json.loads(item) for item in data if item != "[DONE]"], data[-1] == "[DONE]"


def test_the_log_and_the_answers_say_that_it_is_a_double(served):
    assert "double: a stand-in for hosts without GPUs, not vLLM itself" in served.log
    _, body = served.post("/v1/chat/completions", CHAT)
    assert body["system_fingerprint"] == "vllm-0.33.0-double"


def test_start_up_logs_vllms_phases_in_order(served):
    phases = [
        "non-default args",
        "Resolved architecture: Qwen3MoeForCausalLM",
        "Initializing a V1 LLM engine",
        "rank 3 in world size 4",
        "Starting to load model",
        "Loading safetensors checkpoint shards",
        "Loading weights took",
        "torch.compile",
        "Maximum concurrency",
        "Graph capturing",
        "init engine",
        "Starting vLLM server on http://127.0.0.1:",
        "Application startup complete.",
    ]
    places = [next(i for i, line in enumerate(served.lines) if text in line) for text in phases]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/ping", 200),
        ("POST", "/ping", 200),
        ("GET", "/is_sleeping", 404),
        ("GET", "/v1/completions", 405),
    ],
)
def test_routes_answer_with_vllms_status(served, method, path, status):
    assert served.send(method, path)[0] == status


def test_version_and_models(served):
    assert served.get("/version") == (200, {"version": "0.33.0"})
    listed = served.get("/v1/models")[1]["data"]
    assert [(item["id"], item["max_model_len"]) for item in listed] == [
        ("Q", 262144),
        ("alias", 262144),
    ]


def test_a_chat_answer_names_the_replica(served):
    status, body = served.post("/v1/chat/completions", CHAT)
    content = body["choices"][0]["message"]["content"]
    assert status == 200
    replica = f"Replica on port {served.port} of {socket.gethostname()}"
    assert f"{replica} answers from GPUs 0000:05:00.0, 0000:26" in content
    assert content.endswith(REPLY)
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == (
        body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    )


@pytest.mark.parametrize(
    ("wish", "tokens", "finish"),
    [({}, 16, "length"), ({"max_tokens": 3}, 3, "length"), ({"max_tokens": 99}, 20, "stop")],
)
def test_a_completion_keeps_to_its_limit(served, wish, tokens, finish):
    prompt = "one two three four five"
    _, body = served.post("/v1/completions", {"model": "Q", "prompt": prompt, **wish})
    assert body["usage"]["completion_tokens"] == tokens
    assert body["choices"][0]["finish_reason"] == finish


def test_ignore_eos_makes_exactly_the_tokens_asked_for(served):
    wish = {"model": "Q", "prompt": [1, 2, 3], "max_tokens": 64, "ignore_eos": True}
    usage = served.post("/v1/completions", wish)[1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 64)


def test_each_prompt_gets_n_choices(served):
    wish = {"model": "Q", "prompt": ["a", "b"], "n": 2}
    choices = served.post("/v1/completions", wish)[1]["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]


def test_a_chat_stream_opens_with_the_role_and_closes_with_the_usage(served):
    body = {**CHAT, "stream_options": {"include_usage": True}}
    chunks, done = events(served, "/v1/chat/completions", body)
    assert done
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert text.endswith(REPLY)
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == len(chunks) - 2


def test_a_completion_stream_has_one_event_a_token(served):
    chunks, done = events(
        served, "/v1/completions", {"model": "Q", "prompt": "hi", "max_tokens": 4}
    )
    assert done
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 3 + ["length"]


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/completions", {"model": "nope", "prompt": "x"}, 404, "NotFoundError"),
        ("/v1/completions", '{"model": "Q"', 400, "Bad Request"),
        ("/v1/completions", {"model": "Q"}, 400, "BadRequestError"),
        ("/v1/completions", {"model": "Q", "prompt": "x", "max_tokens": -3}, 400, "BadRequest"),
        ("/v1/completions", {"model": "Q", "prompt": "x", "max_tokens": 10**6}, 400, "BadRequest"),
        ("/v1/chat/completions", {"model": "Q", "messages": []}, 400, "BadRequestError"),
    ],
)
def test_bad_requests_get_vllms_error_object(served, path, body, status, kind):
    answered, error = served.post(path, body)
    assert answered == status
    assert error["error"]["code"] == status
    assert error["error"]["type"].startswith(kind)


def test_an_api_key_guards_v1_alone(start):
    served = start("--served-model-name", "Q", "--api-key", "secret").ready()
    assert served.post("/v1/chat/completions", CHAT)[0] == 401
    headers = {"Authorization": "Bearer secret"}
    assert served.send("POST", "/v1/chat/completions", CHAT, headers)[0] == 200
    assert served.get("/health")[0] == 200
    assert served.get("/metrics")[0] == 200


def test_metrics_count_what_was_served(served):
    before = served.samples()
    _, body = served.post("/v1/chat/completions", CHAT)
    served.post("/v1/completions", {"model": "Q", "prompt": "hi", "max_tokens": 2})
    after = served.samples()

    def grown(name, **labels):
        pairs = {"engine": "0", "model_name": "Q", **labels}
        inner = ",".join(f'{key}="{pairs[key]}"' for key in sorted(pairs))
        return after[f"{name}{{{inner}}}"] - before[f"{name}{{{inner}}}"]

    made = body["usage"]["completion_tokens"] + 2
    assert grown("vllm:generation_tokens_total") == made
    assert grown("vllm:prompt_tokens_total") == body["usage"]["prompt_tokens"] + 1
    assert grown("vllm:request_success_total", finished_reason="stop") == 1
    assert grown("vllm:request_success_total", finished_reason="length") == 1
    assert grown("vllm:time_to_first_token_seconds_count") == 2
    assert grown("vllm:inter_token_latency_seconds_count") == made - 2
    assert grown("vllm:request_generation_tokens_sum") == made
    assert grown("vllm:request_generation_tokens_bucket", le="2.0") == 1
    assert grown("vllm:request_generation_tokens_bucket", le="+Inf") == 2
    served_chat = 'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}'
    assert after[served_chat] == 1


def test_requests_beyond_max_num_seqs_wait(start):
    limits = ("--served-model-name", "Q", "--max-num-seqs", "1")
    served = start(*limits, APIARY_DOUBLE_STEP_SECONDS="0.005").ready()
    body = {"model": "Q", "prompt": "hi", "stream": True, "max_tokens": 10**5, "ignore_eos": True}
    connections = [http.client.HTTPConnection("127.0.0.1", served.port) for _ in range(2)]
    for connection in connections:
        connection.request("POST", "/v1/completions", json.dumps(body))
    labels = '{engine="0",model_name="Q"}'
    names = [f"vllm:num_requests_{state}{labels}" for state in ("running", "waiting")]
    served.await_samples(lambda samples: [samples[name] for name in names] == [1, 1])
    for connection in connections:
        connection.close()


def test_a_client_that_hangs_up_aborts_its_request(start):
    served = start("--served-model-name", "Q", APIARY_DOUBLE_STEP_SECONDS="0.005").ready()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    body = {**CHAT, "stream": True, "max_tokens": 10**5, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    connection.getresponse().readline()
    connection.close()
    name = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="Q"}'
    running = 'vllm:num_requests_running{engine="0",model_name="Q"}'
    served.await_samples(lambda samples: (samples[name], samples[running]) == (1, 0))


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.10.2", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("0.14.1", "vllm:time_per_output_token_seconds", "vllm:prompt_tokens_by_source"),
        ("0.33.0", "vllm:admission_rejections", "vllm:time_per_output_token_seconds"),
    ],
)
def test_metric_names_are_those_of_the_version(document, version, has, lacks):
    names = {item["name"] for item in document(version)["metrics"]}
    assert has in names
    assert lacks not in names
