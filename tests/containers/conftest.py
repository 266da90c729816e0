# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host for containers below a directory, and an image with the vLLM double, on real Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "apiary-lab"
IMAGE = "apiary-lab-engine:test"
# The engine's version in the demo's deployment.
VERSION = "0.33.0"
# What vllm/vllm-openai-rocm has, so that a command that relies on it fails.
DOCKERFILE = """FROM {base}
COPY vllm /opt/vllm
RUN ln -s /opt/vllm/bin/vllm /usr/local/bin/vllm
ENV container=
ENTRYPOINT ["vllm", "serve"]
CMD []
"""


def docker(*words: str, check: bool = True, **options: object) -> str:
    """Run Docker's client; return what it says."""
    done = subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=120, **options
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """The name of an image as vLLM's own: Python, and the double of the engine on its PATH."""
    if os.geteuid() != 0:
        pytest.skip("needs root: device nodes and directories of other users are made")
    if shutil.which("docker") is None or not docker("version", check=False):
        pytest.skip("no Docker daemon answers here")
    bases = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", BASE).split()
    if not bases:
        pytest.skip("no lab image yet: tests/lab/lab.py up --name demo makes it")
    context = tmp_path_factory.mktemp("image")
    build = [sys.executable, ROOT / "tests/lab/vllm_double/build.py", VERSION, context / "vllm"]
    subprocess.run(build, check=True, capture_output=True)
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=bases[0]))
    docker("build", "--quiet", "--tag", IMAGE, str(context))
    return IMAGE
