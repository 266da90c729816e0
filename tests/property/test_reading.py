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
from tests.support.printers import system as printers_system
from tests.support.shared import SHARED

MESH = printers.mesh()


# What test_generated.py does not print.
TEXTS = {
    "evidence": json.dumps(printers.bundle(MESH)),
    "amd-smi list without groups": amd.list_without_groups(MESH),
    "amd-smi partition": amd.partition_text(64, 8, old=True),
    "numactl": printers_system.numactl([range(64), range(64, 128)]),
}


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


CAPTURES = SHARED / "captures"
FILES = sorted(CAPTURES.glob("*.txt")) + sorted(CAPTURES.glob("*.json"))


@pytest.mark.skipif(not FILES, reason="the captures are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_whatever_happens_to_a_capture_it_is_read_or_refused(path):
    text = path.read_bytes().decode("utf-8", errors="replace")
    rng = random.Random(path.name)
    for _time in range(4 if len(text) > 100_000 else 40):
        outcome(damaged(text, rng), path.name)
