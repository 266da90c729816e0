# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary bench --image`: the load generator in a container of real Docker's; about half a minute.

The engine is the simulator on this machine, the client in the image is ours behind vLLM's options.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import client as bench_client

from apiary.app.cli import main

from .conftest import BASE, ROOT, docker

IMAGE = "apiary-lab-bench:test"
HERE = Path(__file__).parent
PROGRAMS = Path(bench_client.__file__).parent
INSIDE = "ansible_collections/apiary/instinct/plugins/module_utils/load"
DOCKERFILE = """FROM {base}
COPY apiary /opt/apiary
COPY vllm_client.py /usr/local/bin/vllm
ENTRYPOINT ["vllm", "serve"]
"""
KEY = "planted-bench-key"


@pytest.fixture(scope="module")
def client_image(tmp_path_factory):
    """The name of an image with a client at `vllm`."""
    if shutil.which("docker") is None or not docker("version", check=False):
        pytest.skip("no Docker daemon answers here")
    bases = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", BASE).split()
    if not bases:
        pytest.skip("no lab image yet: tests/lab/lab.py up --name demo makes it")
    context = tmp_path_factory.mktemp("bench-image")
    place = context / "apiary" / INSIDE
    place.mkdir(parents=True)
    for source in PROGRAMS.glob("*.py"):
        shutil.copy(source, place)
    shutil.copy(HERE / "vllm_client.py", context)
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=bases[0]))
    docker("build", "--quiet", "--tag", IMAGE, str(context))
    return IMAGE


@pytest.fixture
def server():
    """The address of a simulated engine on this machine."""
    argv = [sys.executable, "-m", "engine_simulator", "serve", "--model", "lab"]
    with subprocess.Popen(
        argv, cwd=ROOT / "tests/lab", stdout=subprocess.PIPE, text=True
    ) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def words(server, image, out, *more):
    """The command that measures two requests at once."""
    tokenizer = out.parent / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    asked = ["bench", server, "--image", image, "--tokenizer", str(tokenizer), "--out", str(out)]
    asked += ["--workload", "64/50", "--phases", "scaling", "--concurrency", "2"]
    return [*asked, "--rule", "requests_least=20", "--rule", "warmup_most=1", *more]


def containers():
    """What Docker has of this image, stopped or not."""
    return docker("ps", "--all", "--quiet", "--filter", f"ancestor={IMAGE}").split()


def test_a_client_in_a_container_measures_a_level(client_image, server, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    out = tmp_path / "out"
    main(words(server, client_image, out, "--no-self-test"))

    text = (out / "bench.json").read_text()
    assert KEY not in text
    document = json.loads(text)
    assert document["environment"]["engine"]["image"] == client_image
    (level,) = [one for one in document["levels"] if one["load"]["phase"] == "scaling"]
    assert level["client"]["version"] == "0.32.0"
    # Nobody's child's time is known of a container.
    assert level["client"]["cpu_seconds"] is None
    assert (level["measured"]["completed"], level["measured"]["failed"]) == (20, 0)
    assert level["measured"]["input_tokens"] == 64 * level["measured"]["output_tokens"] / 50
    assert 0.010 <= level["measured"]["tpot"]["p50"] <= 0.02
    assert containers() == []


def test_an_interrupted_benchmark_leaves_no_container(client_image, server, tmp_path):
    command = words(server, client_image, tmp_path / "out", "--no-self-test", "--soak", "600")
    with subprocess.Popen(
        [sys.executable, "-m", "apiary", *command],
        env={**os.environ, "VLLM_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not docker("ps", "--quiet", "--filter", f"ancestor={IMAGE}"):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    deadline = time.monotonic() + 60
    while containers():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_image_without_a_client_is_refused(client_image, server, tmp_path, capsys):
    (base,) = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", BASE).split()[:1]
    assert main(words(server, base, tmp_path / "out", "--json")) == 1
    assert "BENCH-CLIENT" in capsys.readouterr().err
