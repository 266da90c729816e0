# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damaged output of every tool, printed here or captured: read or refused, never a smaller host."""

import json
import random

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers import system as printers_system
from tests.support.shared import SHARED

MESH = printers.mesh()


def flat(files):
    """A tree as `head` prints it."""
    return "".join(f"==> {path.split('topology/')[-1]} <==\n{text}" for path, text in files.items())


# Tables of pairs and trees: what is cut off leaves a hole that shows.
MATRICES = {
    "rocm-smi topology": printers.rocm_smi_topology(MESH),
    "rocm-smi JSON": printers.rocm_smi_json(MESH),
    "rocm-smi types": rocm.one_table(MESH, "Link Type"),
    "rocm-smi bandwidth": rocm.bandwidth(MESH),
    "amd-smi topology": printers.amd_smi_topology(MESH),
    "amd-smi topology 7": printers.amd_smi_topology(MESH, blank_lines=False),
    "amd-smi topology 6.0": amd.topology_linear(MESH),
    "amd-smi JSON": printers.amd_smi_topology_json(MESH),
    "amd-smi old JSON": printers.amd_smi_topology_json(MESH, old=True),
    "amd-smi xgmi": amd.xgmi_text(MESH),
    "amd-smi xgmi 6.1": amd.xgmi_text(MESH, by_address=True),
    "amd-smi xgmi JSON": amd.xgmi_json(MESH),
    "KFD": flat(printers.kfd_files(MESH)),
    "bandwidth test": printers_system.bandwidth_test(MESH),
    "evidence": json.dumps(printers.bundle(MESH)),
}
# Lists: one that ends between two GPUs looks whole, except where the tool prints an end.
LISTS = {
    "amd-smi list JSON": printers.amd_smi_list_json(MESH),
    "amd-smi static JSON": amd.static_json(MESH, wrapped=True),
    "amd-smi partition JSON": amd.partition_json(MESH),
    "rocm-smi identity": rocm.identity(MESH),
    "rocm-smi metrics": rocm.metrics(MESH, {1: ["0", "1"]}),
    "rocm-smi 4": rocm.concise(MESH, "4.x"),
    "rocm-smi 5": rocm.concise(MESH, "5.7"),
    "rocm-smi 6.0": rocm.concise(MESH, "6.0"),
    "rocm-smi 6.1.1": rocm.concise(MESH, "6.1.1"),
    "rocm-smi hardware": rocm.hardware(MESH, 3),
    "amd-smi list": amd.list_text(MESH, enumeration=True),
    "amd-smi list without groups": amd.list_without_groups(MESH),
    "amd-smi static": amd.static_text(MESH, host_processor=True),
    "amd-smi partition": amd.partition_text(64, 8, old=True),
    "amd-smi partitions before 7": amd.partition_json(MESH, one_document=False),
    "amd-smi box": amd.box(MESH),
    "rocminfo": printers_system.rocminfo(MESH),
    "lspci": printers_system.lspci(MESH),
    "numactl": printers_system.numactl([range(64), range(64, 128)]),
}
ENDED = [
    name
    for name in LISTS
    if name.startswith(("rocm-smi", "amd-smi box", "rocminfo")) or name.endswith("JSON")
]
TEXTS = MATRICES | LISTS


def outcome(text, name):
    """Return the topology, or None where it was refused with findings."""
    try:
        topology = read(text, name)
    except ApiaryError:  # it cannot be made without a finding
        return None
    assert isinstance(topology, Topology)
    return topology


NOISE = (
    "[ 1234.567890] amdgpu 0000:05:00.0: amdgpu: ring gfx timeout",
    "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status",
    "get_link_weight_topology, Not supported on the given system",
    "ERROR: GPU[1]\t: Cannot read Link Weight: Not supported on this machine",
    "root@gpu-001:~# ",
    "srun: error: nid200001: task 0: Exited with exit code 2",
    "\x1b[3m\x1b[0m",
    "\ufffd\ufffd \u00a0 Â°",
    "{",
    "[]",
    "...",
    "GPU0",
    "GPU: 3",
    "Legend:",
    "==== ",
    "0: ",
    "",
)


def damaged(text, rng):
    """Return text with one kind of damage, chosen by a seeded generator."""
    lines = text.split("\n")
    kind = rng.randrange(7)
    place = rng.randrange(len(lines))
    other = rng.randrange(len(lines))
    if kind == 0:
        return text[: rng.randrange(len(text) + 1)]
    if kind == 1:
        return text[rng.randrange(len(text) + 1) :]
    if kind == 2:
        del lines[min(place, other) : max(place, other)]
    elif kind == 3:
        del lines[place]
    elif kind == 4:
        lines.insert(other, lines[place])
    elif kind == 5:
        lines.insert(place, rng.choice(NOISE))
    else:
        word = rng.choice(lines[place].split() or [""])
        lines[place] = lines[place].replace(word, rng.choice(("", "N/A", "-1", "XXXX", "9" * 30)))
    return "\n".join(lines)


@pytest.mark.parametrize("name", TEXTS)
@examples(0.3)
@given(seed=st.integers(0, 2**32), times=st.integers(1, 3))
def test_whatever_happens_to_output_it_is_read_or_refused(name, seed, times):
    rng, text = random.Random(seed), TEXTS[name]
    for _time in range(times):
        text = damaged(text, rng)
    outcome(text, name)


def told(topology):
    return [finding for finding in topology.findings if finding.severity != "info"]


@pytest.mark.parametrize("name", [*MATRICES, *ENDED])
@examples(0.3)
@given(share=st.floats(0, 0.9999))
def test_a_cut_is_told_or_changes_no_count(name, share):
    text = TEXTS[name].rstrip()
    whole, cut = read(text, name), outcome(text[: int(len(text) * share)], name)
    if cut is not None:
        assert len(cut.gpus) == len(whole.gpus) or told(cut)


@pytest.mark.parametrize("name", MATRICES)
@examples(0.3)
@given(start=st.floats(0, 1), length=st.floats(0, 1))
def test_lines_that_are_lost_are_told_or_change_no_count(name, start, length):
    lines = MATRICES[name].split("\n")
    first = int(len(lines) * start)
    lost = outcome("\n".join(lines[:first] + lines[first + int(len(lines) * length) :]), name)
    if lost is not None and lost.gpus:
        assert len(lost.gpus) >= 8 or told(lost)


CAPTURES = SHARED / "captures"
FILES = sorted(CAPTURES.glob("*.txt")) + sorted(CAPTURES.glob("*.json"))


@pytest.mark.skipif(not FILES, reason="the captures are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_whatever_happens_to_a_capture_it_is_read_or_refused(path):
    text = path.read_bytes().decode("utf-8", errors="replace")
    rng = random.Random(path.name)
    for _time in range(4 if len(text) > 100_000 else 40):
        outcome(damaged(text, rng), path.name)
