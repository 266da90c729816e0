# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Any file in, a topology or one finding out."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from tests.support.printers import machine as printers


def test_evidence_is_recognised():
    evidence = printers.bundle(printers.mesh())
    assert read(json.dumps(evidence), "gpu-001.json") == from_evidence(evidence)


def test_a_topology_document_comes_back_as_it_was():
    topology = from_evidence(printers.bundle(printers.mesh()))
    assert read(dumps(topology), "topology.json") == topology


def test_a_capture_is_named_after_its_file():
    topology = read(printers.rocm_smi_topology(printers.mesh()), "captures/gpu-007.txt")
    assert topology.host == "gpu-007"


ROCMINFO = """ROCk module version 6.16.13 is loaded
=====================
HSA System Attributes
=====================
Agent 1
*******
  Uuid:                    CPU-XX
  Node:                    0
  Device Type:             CPU
  Chip ID:                 0(0x0)
*******
Agent 2
*******
  Name:                    gfx942
  Uuid:                    GPU-43529fe3ce00c724
  Node:                    1
  Device Type:             GPU
  Cache Info:
    L1:                      32(0x20) KB
  Chip ID:                 29877(0x74b5)
  BDFID:                   33536
*** Done ***
"""


def test_rocminfo_is_recognised():
    (gpu,) = read(ROCMINFO, "rocminfo.txt").gpus
    assert (gpu.bdf, gpu.kfd_node, gpu.hip_ordinal) == (None, 1, 0)
    assert (gpu.model, gpu.virtual_function) == ("MI300X", True)
    assert gpu.unique_id == "43529fe3ce00c724"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "TOPO-UNRECOGNISED"),
        ("hello\n", "TOPO-UNRECOGNISED"),
        ("\x00\x01\x02", "TOPO-UNRECOGNISED"),
        ("{}", "TOPO-UNRECOGNISED"),
        ('{"name": "gpu-1", "value": [1, 2]}', "TOPO-UNRECOGNISED"),
        ("[" * 100000, "TOPO-DAMAGED-JSON"),
        ('{"card0": ', "TOPO-DAMAGED-JSON"),
        ('{"schema": "apiary.topology/v1"}', "DOC-MISSING"),
        ('{"schema": "apiary.topology/v1", "host": "h", "gpus": 3}', "DOC-TYPE"),
        ('{"schema": "apiary.evidence/v1"}', "DOC-MISSING"),
        ('{"schema": "apiary.plan/v1"}', "DOC-SCHEMA"),
    ],
)
def test_anything_else_is_refused_with_one_finding(text, code):
    with pytest.raises(ApiaryError) as refusal:
        read(text, "file.txt")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.subject) == (code, "file.txt")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: "".join(f"\x1b[3m{line}\x1b[0m\n" for line in text.splitlines()),
        lambda text: "".join(f"2: {line}\n" for line in text.splitlines()),
        lambda text: "root@gpu-001:~# rocm-smi --showtopo\n" + text + "root@gpu-001:~# \n",
        lambda text: "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n" + text,
        lambda text: text + "srun: error: nid200001: tasks 0: Exited with exit code 2\n",
        lambda text: "\ufeff" + text,
        lambda text: "\n".join(line.rstrip() for line in text.splitlines()),
        lambda text: text.replace("\t", "        "),
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
        lambda text: "Here it is:\n```console\n" + text + "```\n",
        lambda text: text.replace("\n", "\r\n").replace("GPU0", "\x1b[1mGPU0\x1b[0m"),
        lambda text: "".join(f"00: {line}\n" for line in text.splitlines() if line),
    ],
    ids=[
        "CRLF",
        "NBSP",
        "ANSI",
        "label",
        "prompts",
        "warning",
        "srun",
        "BOM",
        "stripped",
        "tabs",
        "quoted",
        "indented",
        "fenced",
        "terminal",
        "padded label",
    ],
)
def test_damage_in_transit_changes_nothing(damage):
    text = printers.rocm_smi_topology(printers.mesh())
    clean, damaged = read(text, "t.txt"), read(damage(text), "t.txt")
    assert (damaged.gpus, damaged.links) == (clean.gpus, clean.links)
    assert damaged.findings == clean.findings
