# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary probe` of a host over SSH, as an operator types it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import HOSTS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def probe(variables, tmp_path):
    """Run the command against the lab host; its exit code, findings and bundles."""
    extra = shlex.split(variables["ansible_ssh_common_args"])
    known = next(word.partition("=")[2] for word in extra if "UserKnownHostsFile=" in word)

    def run(known_hosts=known):
        target = "ssh://{ansible_user}@{ansible_host}:{ansible_port}".format(**variables)
        argv = [sys.executable, "-m", "apiary", "probe", target, "--json"]
        argv += ["--identity", variables["ansible_ssh_private_key_file"]]
        argv += ["--known-hosts", str(known_hosts), "--out", str(tmp_path / "evidence")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        findings = json.loads(done.stderr)["findings"] if done.stderr else []
        files = json.loads(done.stdout)["files"].values()
        return done.returncode, findings, list(files)

    return run


def test_a_host_gives_its_evidence(probe):
    code, findings, (file,) = probe()
    assert (code, findings) == (0, [])
    argv = [sys.executable, "-m", "apiary", "topology", file, "--json"]
    read = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert len(json.loads(read.stdout)["gpus"]) == 8


def test_a_host_that_is_not_known_is_refused(probe, tmp_path):
    (tmp_path / "known_hosts").write_text("")
    code, findings, files = probe(tmp_path / "known_hosts")
    assert (code, files) == (1, [])
    assert [finding["code"] for finding in findings] == ["PROBE-HOST-KEY"]


def test_the_inventory_leads_to_every_host(tmp_path):
    argv = [sys.executable, "-m", "apiary", "probe", "--inventory", ROOT / "inventory/lab"]
    argv += ["--limit", "gpu_hosts", "--out", tmp_path, "--json"]
    # Molecule sets a configuration of its own; an operator has the project's.
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    assert json.loads(done.stdout)["files"] == {name: f"{tmp_path}/{name}.json" for name in HOSTS}
