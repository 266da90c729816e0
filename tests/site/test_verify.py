# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that load GPUs, as doubles: refused beside replicas, run and judged without them.

Costs two runs of verify.yml without its roles, some 15 s each, and three of site.yml.
"""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = os.environ.get("APIARY_LAB", "demo")
HOST = "gpu-001"
INSTALL = ROOT / "tests/lab/test_doubles/install.sh"
OUTPUTS = ROOT / "tests/unit/acceptance/outputs"
ASKED = {"apiary_concerns": [], "acceptance_tests": ["rccl", "transferbench", "rvs"]}
MEASURED = ("ACCEPT-RCCL", "ACCEPT-TRANSFERBENCH", "ACCEPT-RVS")


def piped(line, data):
    """Run a line of shell as root on the host, with data on its standard input."""
    words = [sys.executable, "tests/lab/lab.py", "ssh", "--name", LAB, HOST, f"sudo {line}"]
    done = subprocess.run(words, cwd=ROOT, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def doubles(operator):
    """The programs on the host, and nothing that serves there."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(OUTPUTS, "outputs")
    piped("tar -C /tmp -xf -", packed.getvalue())
    piped("sh -s /tmp/outputs", INSTALL.read_bytes())
    units = " ".join(serving(operator))
    if units:
        operator.shell(f"systemctl stop {units}")
    yield
    operator.shell(
        "rm -rf /opt/rocm/bin/all_reduce_perf /opt/rocm/bin/TransferBench /opt/rocm/bin/rvs "
        "/opt/rocm/share/rocm-validation-suite /usr/share/apiary-doubles /tmp/outputs"
    )
    if units:
        operator.shell(f"systemctl start {units}")


def serving(operator):
    """Return the units of the replicas that run."""
    said = operator.shell("systemctl list-units --plain --no-legend --state=running apiary-*")
    return re.findall(r"^apiary-\S+-[0-9]+\.service", said, re.MULTILINE)


def measured(operator):
    checks = operator.document("acceptance.json")["checks"]
    return [one for one in checks if one["code"] in MEASURED]


def test_programs_are_refused_beside_replicas(operator):
    if not serving(operator):
        pytest.skip("nothing serves on this host")
    done = operator.play("verify", "-e", json.dumps(ASKED))
    assert done.code != 0
    judged = operator.document("acceptance.json")
    assert [one["code"] for one in judged["complaints"]] == ["ACCEPT-BUSY"]
    assert measured(operator) == []


def test_programs_are_run_and_judged_by_amds_bounds(operator, doubles):
    operator.play("verify", "-e", json.dumps(ASKED))
    found = measured(operator)
    assert {one["state"] for one in found} == {"pass", "skip"}
    figures = {one["subject"]: one["found"] for one in found if one["state"] == "pass"}
    assert figures[f"{HOST}: rccl all_reduce"] == "311.28 GB/s"
    assert figures[f"{HOST}: transferbench a2a"] == "46.552 GB/s"
    skipped = [one["found"] for one in found if one["state"] == "skip"]
    assert skipped
    assert all(one.startswith("not installed: ") for one in skipped)
    raw = operator.artifacts / HOST / "acceptance/rccl-all_reduce.txt"
    assert "Avg bus bandwidth" in raw.read_text()


def test_a_new_host_serves_only_once_its_gpus_were_loaded(operator, doubles):
    slow = "/usr/share/apiary-doubles/slow"
    operator.shell(f"touch {slow}")
    done = operator.play("site")
    assert done.code != 0
    assert "due: neither a burn-in nor an acceptance of it is recorded" in done.output
    record = operator.document("quarantine.json")
    assert [one["code"] for one in record["findings"]] == ["ACCEPT-BURN-IN"]
    assert "at least 304 GB/s" in done.output
    assert serving(operator) == []
    operator.shell(f"rm {slow}")
    done = operator.play("site")
    assert done.code == 0, done.output
    assert "due: its last burn-in failed" in done.output
    record = operator.document("burn-in.json")
    assert (record["accepted"], len(record["gpus"])) == (True, 8)
    assert serving(operator)
    done = operator.play("site")
    assert done.recap()["changed"] == 0
    assert "Burn in |" not in done.output
