# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A newcomer's bare machine with a clone, and one simulated GPU host that it can log in to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from .machine import OWN_ENGINE, ROOT, SAME_NETWORK, Machine, clone_of, quietly, start

LAB = "stranger"


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """A repository with what this checkout has, committed or not."""
    return clone_of(tmp_path_factory.mktemp("repository"))


@contextmanager
def running(repository: Path, options: Sequence[str]) -> Iterator[Machine]:
    """Have a bare machine for a while."""
    if os.geteuid() != 0:
        pytest.skip("debootstrap takes root")
    if not shutil.which("docker") or not shutil.which("debootstrap"):
        pytest.skip("needs docker and debootstrap: `make demo` brings them")
    name = f"apiary-stranger-{os.getpid()}-{len(options)}"
    try:
        yield start(name, repository, options)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True)


@pytest.fixture(scope="session")
def machine(repository):
    """The bare machine."""
    with running(repository, SAME_NETWORK) as made:
        yield made


@pytest.fixture
def powerful(repository):
    """A bare machine on which a Docker engine can run."""
    with running(repository, OWN_ENGINE) as made:
        yield made


@pytest.fixture(scope="session")
def host(machine: Machine):
    """A simulated host that is gpu-001 to the newcomer: ~/.ssh/config and its key say so."""
    lab = [sys.executable, str(ROOT / "tests/lab/lab.py")]
    quietly([*lab, "up", "--name", LAB, "--hosts", "1"])
    try:
        directory = ROOT / ".lab" / LAB
        entry = json.loads((directory / "hosts.json").read_text())["hosts"]["gpu-001"]
        port = entry["ssh_port"]
        machine.put(
            "/root/.ssh/config",
            f"Host gpu-001\n  HostName 127.0.0.1\n  Port {port}\n  User {entry['user']}\n",
        )
        machine.put("/root/.ssh/id_ed25519", (directory / "id_ed25519").read_text(), 0o600)
        machine.put("/root/.ssh/known_hosts", (directory / "known_hosts").read_text())
        yield entry
    finally:
        quietly([*lab, "down", "--name", LAB])
