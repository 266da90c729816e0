# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The double ends with vLLM's exit status: 2 parser, 1 configuration and start, 0 while serving."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

SLOW = {"APIARY_DOUBLE_STEP_SECONDS": "0.02"}
LONG = {"model": "Q", "prompt": "hi", "stream": True, "ignore_eos": True}


def engine_pid(running):
    return int(re.search(r"EngineCore pid=(\d+)", running.log)[1])


def open_stream(running, tokens):
    """Return the response of a streaming request whose first token has come."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**LONG, "max_tokens": tokens}))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    return connection, answer


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--num-scheduler-steps", "1"], 2, "unrecognized arguments: --num-scheduler-steps 1"),
        (["--dtype", "fp9"], 2, "invalid choice: 'fp9'"),
        (["--tensor-parallel-size", "5"], 1, "attention heads (64) must be divisible"),
        (["--tensor-parallel-size", "16"], 1, "16 GPUs are needed and 8 are visible"),
        (["--quantization", "awq"], 1, "(fp8) does not match the quantization"),
        (["--max-model-len", "300k"], 1, "greater than the derived max_model_len"),
        (["--attention-backend", "FASTEST"], 1, "Unknown attention backend: 'FASTEST'"),
        (["--config", "x.yaml"], 1, "beyond this double"),
    ],
)
def test_what_cannot_start_ends_with_vllms_status(start, arguments, status, message):
    running = start(*arguments)
    assert running.end() == status
    assert message in running.log


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("APIARY_GPUS", "0000:05:00.0", "APIARY_GPUS: promised 0000:05:00.0; found"),
        ("HIP_VISIBLE_DEVICES", "0", "4 GPUs are needed and 1 are visible"),
        ("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "FP8", "Invalid value 'FP8'"),
    ],
)
def test_an_environment_that_cannot_serve_ends_with_one(start, name, value, message):
    running = start("--tensor-parallel-size", "4", **{name: value})
    assert running.end() == 1
    assert message in running.log


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Repo id must be in the form"),
        ("{", "is not a valid JSON file"),
        ("{}", "No model architectures are specified"),
    ],
)
def test_a_model_that_cannot_be_read_ends_with_one(start, tmp_path, content, message):
    if content is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(content)
    running = start(model=tmp_path / "model")
    assert running.end() == 1
    assert message in running.log


def test_expert_parallelism_without_experts_ends_with_one(start, tmp_path):
    (tmp_path / "model").mkdir()
    config = {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 4}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    running = start("--enable-expert-parallel", model=tmp_path / "model")
    assert running.end() == 1
    assert "Number of experts in the model must be greater than 0" in running.log


def test_block_fp8_experts_need_expert_parallelism_at_tp8_until_0_30(start):
    running = start("--tensor-parallel-size", "8", version="0.30.0")
    assert running.end() == 1
    assert "= 192 is not divisible by weight quantization block_n = 128" in running.log


@pytest.mark.parametrize(
    ("version", "extra"), [("0.30.0", ["--enable-expert-parallel"]), ("0.32.0", [])]
)
def test_block_fp8_experts_start_otherwise(start, version, extra):
    running = start("--tensor-parallel-size", "8", *extra, version=version).ready()
    assert running.terminate() == 0


def test_a_busy_port_ends_with_one_before_weights(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = start(port=taken.getsockname()[1])
        assert running.end() == 1
    assert "Address already in use" in running.log
    assert "Starting to load model" not in running.log


def test_a_gpu_in_use_ends_the_second_engine_with_one(start):
    start("--tensor-parallel-size", "4").ready()
    running = start("--tensor-parallel-size", "2")
    assert running.end() == 1
    assert "Free memory on device cuda:0" in running.log
    assert "Engine core initialization failed" in running.log


def test_two_engines_share_a_host_with_disjoint_gpus(start):
    first = start("--tensor-parallel-size", "4", HIP_VISIBLE_DEVICES="0,1,2,3").ready()
    second = start("--tensor-parallel-size", "4", HIP_VISIBLE_DEVICES="4,5,6,7").ready()
    assert (first.get("/health")[0], second.get("/health")[0]) == (200, 200)


def test_callers_are_refused_until_start_up_is_complete(start):
    running = start(APIARY_DOUBLE_PHASE_SECONDS="30")
    running.await_line("Initializing a V1 LLM engine")
    with pytest.raises(ConnectionRefusedError):
        running.get("/health")
    assert running.terminate() == 1


def test_sigterm_while_serving_ends_with_zero(start):
    running = start().ready()
    assert running.terminate() == 0


def test_sigterm_drops_requests_without_a_shutdown_timeout(start):
    running = start("--served-model-name", "Q", **SLOW).ready()
    connection, answer = open_stream(running, 10**5)
    assert running.terminate() == 0
    assert b"EngineCore encountered an issue" in answer.read()
    connection.close()


def test_sigterm_lets_requests_finish_within_the_shutdown_timeout(start):
    running = start("--served-model-name", "Q", "--shutdown-timeout", "60", **SLOW).ready()
    connection, answer = open_stream(running, 100)
    running.process.send_signal(signal.SIGTERM)
    running.await_line("Shutting down")
    assert running.get("/health")[0] == 200
    assert running.post("/v1/completions", {"model": "Q", "prompt": "new"})[0] == 500
    assert answer.read().count(b"data: ") == 100  # 99 more tokens and [DONE]
    connection.close()
    assert running.end() == 0


def test_requests_left_at_the_end_of_the_shutdown_timeout_are_dropped(start):
    running = start("--served-model-name", "Q", "--shutdown-timeout", "1", **SLOW).ready()
    connection, answer = open_stream(running, 10**5)
    assert running.terminate() == 0
    assert b"EngineCore encountered an issue" in answer.read()
    connection.close()


def test_versions_without_the_flag_do_not_drain(start):
    running = start("--served-model-name", "Q", version="0.17.1", **SLOW).ready()
    connection, answer = open_stream(running, 10**5)
    assert running.terminate() == 0
    assert b"EngineCore encountered an issue" in answer.read()
    connection.close()


def test_an_engine_that_dies_while_serving_ends_the_server_with_zero(start):
    running = start("--served-model-name", "Q", **SLOW).ready()
    connection, answer = open_stream(running, 10**5)
    os.kill(engine_pid(running), signal.SIGKILL)
    running.await_line("EngineDeadError")
    assert running.get("/health")[0] == 503
    status, body = running.post("/v1/completions", {"model": "Q", "prompt": "new"})
    assert (status, body["error"]["type"]) == (500, "InternalServerError")
    assert b"EngineCore encountered an issue" in answer.read()
    connection.close()
    assert running.end() == 0


def test_a_dead_engine_keeps_its_server_where_asked_to(start):
    running = start(VLLM_KEEP_ALIVE_ON_ENGINE_DEATH="1", APIARY_DOUBLE_WATCHDOG_SECONDS="0").ready()
    os.kill(engine_pid(running), signal.SIGKILL)
    running.await_line("EngineDeadError")
    assert running.get("/health")[0] == 503
    assert running.terminate() == 0


def test_vllms_deafness_while_starting_is_kept_on_request(start):
    running = start(
        APIARY_DOUBLE_PHASE_SECONDS="30",
        APIARY_DOUBLE_FAITHFUL_HANG="1",
        VLLM_ENGINE_READY_TIMEOUT_S="1",
    )
    running.await_line("Initializing a V1 LLM engine")
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 1


def test_version_is_printed(executable):
    import subprocess
    import sys

    command = [sys.executable, str(executable("0.20.2")), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0.20.2\n"


def test_an_unknown_version_cannot_be_built(builder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["build.py", "9.9.9", str(tmp_path / "out")])
    assert builder.main() == 1
    assert "ENGINE-NEAREST-VERSION" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_worker_that_dies_ends_its_engine(start):
    running = start("--tensor-parallel-size", "2").ready()
    core = engine_pid(running)
    children = Path(f"/proc/{core}/task/{core}/children").read_text().split()
    names = [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    assert names == ["VLLM::Worker_TP"] * 2
    os.kill(int(children[1]), signal.SIGKILL)
    running.await_line("Worker proc VllmWorker-1 died unexpectedly")
    assert running.end() == 0
