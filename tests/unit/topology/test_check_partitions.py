# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Partition modes, and whether all that they make is there."""

import itertools
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks import check
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Link,
    Topology,
)

from tests.support.checked import KEYS, codes, partitions


def test_missing_partitions_are_counted_against_the_largest_gpu():
    gpus = partitions(KEYS[0], 8, mode=None) + partitions(KEYS[1], 7, mode=None)
    (finding,) = [one for one in check(Topology("h", gpus)) if one.code == "TOPO-PARTITION-COUNT"]
    assert finding.message == "partitions in view: 0000:26:00.0: 7 of 8"


def test_63_of_64_devices_have_their_cause_named():
    gpus = sum((partitions(key, 8) for key in KEYS[:7]), ()) + partitions(KEYS[7], 7)
    (finding,) = check(Topology("h", gpus))
    assert finding.code == "TOPO-PARTITION-COUNT"
    assert finding.message == (
        "partitions in view: 0000:e5:00.0: 7 of 8 (CPX); 63 of 64 devices is what 64 DRM minors "
        "give when a display adapter, most often the BMC's (ast), holds one"
    )
    assert check(Topology("h", sum((partitions(key, 8) for key in KEYS), ()))) == []


def test_weights_between_partitions_are_no_detour():
    gpus = partitions(KEYS[0], 2, "DPX") + partitions(KEYS[1], 2, "DPX")
    keys = [f"{key}#{part}" for key in KEYS[:2] for part in range(2)]
    links = [
        Link(a, b, "xgmi", 1, 13 if a[:12] == b[:12] else 41)
        for a, b in itertools.combinations(keys, 2)
    ]
    assert check(Topology("h", gpus, tuple(links))) == []


def test_partitions_of_one_gpu_are_one_whatever_is_known_of_their_links():
    gpus = sum((partitions(key, 2, "DPX") for key in KEYS[:3]), ())
    links = [
        Link(f"{KEYS[0]}#0", f"{KEYS[1]}#0", "xgmi"),
        Link(f"{KEYS[1]}#1", f"{KEYS[2]}#0", "xgmi"),
    ]
    assert check(Topology("h", gpus, tuple(links))) == []


def test_every_mode_has_its_number_of_partitions():
    gpus = partitions(KEYS[0], 2, "DPX") + partitions(KEYS[1], 1, "DPX")
    (finding,) = check(Topology("h", gpus))
    assert finding.message == "partitions in view: 0000:26:00.0: 1 of 2 (DPX)"


def test_one_gpu_in_another_mode_has_all_its_partitions():
    gpus = partitions(KEYS[0], 8) + sum((partitions(key, 1, "SPX") for key in KEYS[1:]), ())
    assert codes(check(Topology("h", gpus))) == ["TOPO-PARTITION-MIXED"]


@pytest.mark.parametrize(("mode", "parts"), [("NPS2", 2), ("NPS4", 8)])
def test_divided_memory_is_told(mode, parts):
    compute = {2: "DPX", 8: "CPX"}[parts]
    gpus = sum((partitions(key, parts, compute, mode) for key in KEYS), ())
    (finding,) = check(Topology("h", gpus))
    assert (finding.code, finding.severity) == ("TOPO-MEMORY-PARTITION", "info")
    assert f"is in mode {mode}: {mode[-1]} domains a GPU" in finding.message


def test_a_partition_that_shares_a_memory_domain_has_its_part_of_it():
    """CPX makes eight of a GPU and NPS4 four: 24 GiB of 192 are 1/8, whatever the mode's number."""
    gpus = sum((partitions(key, 8, "CPX", "NPS4") for key in KEYS), ())
    gpus = tuple(replace(gpu, vram_bytes=24 * 2**30) for gpu in gpus)
    (finding,) = check(Topology("h", gpus))
    assert finding.message == (
        "the GPUs' memory is in mode NPS4: 4 domains a GPU, 2 of its 8 partitions to each; a "
        "device reports 24 GiB of its GPU's 192"
    )
