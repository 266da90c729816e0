# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damage in transit, ways to say unknown, identifiers."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology import observation
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers import marks, text


@pytest.mark.parametrize(
    ("damaged", "clean"),
    [
        ("\x1b[3mGPU0\x1b[0m", "GPU0\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("a\u00a0b", "a b\n"),
        ("\ufeffa", "a\n"),
        ("0: first\n0: second\n", "first\nsecond\n"),
        ("0: labelled\nnot\n", "0: labelled\nnot\n"),
        ("gpu-001: 1\ngpu-001:\ngpu-001: 3\n", "1\n\n3\n"),
        (
            "a1: 1\na1: 2\na1: 3\nb1: 1\nb1: 2\nb1: 3\n",
            "a1: 1\na1: 2\na1: 3\nb1: 1\nb1: 2\nb1: 3\n",
        ),
        ("ERROR: 1\nERROR: 2\nERROR: 3\n", "ERROR: 1\nERROR: 2\nERROR: 3\n"),
        ("gpu-001: a message\n", "gpu-001: a message\n"),
    ],
)
def test_clean_undoes(damaged, clean):
    assert marks.clean(damaged) == clean


@pytest.mark.parametrize(
    ("printed", "documents"),
    [
        ('WARNING: low-power state\n{"card0": {}}\n', [{"card0": {}}]),
        (
            '[{"gpu": 0}]\n\nLegend:\n * = Current mode\n[{"gpu": 1}]\n',
            [[{"gpu": 0}], [{"gpu": 1}]],
        ),
        ('srun: {"card0": {}}', [{"card0": {}}]),
        ("[]\n", [[]]),
        ("GPU[0]\t\t: PCI Bus: 0000:05:00.0\n[output truncated]\n", []),
        ("OSError: [Errno 24] Too many open files", []),
    ],
)
def test_json_is_found_among_other_lines(printed, documents):
    assert text.json_documents(printed) == documents


@pytest.mark.parametrize("cut", ['{"card0": {"PCI Bus"', '[{"gpu": 0,', '[\n  {"gpu": 0,},\n]'])
def test_half_a_document_is_not_a_smaller_one(cut):
    with pytest.raises(text.DamagedJsonError):
        text.json_documents(cut)


@pytest.mark.parametrize(
    "value",
    ["N/A", "None", "XXXX", "", "unknown", "65535", "4294967295", 2**64 - 1, None, True, [], 1.5],
)
def test_unknown_is_none(value):
    assert text.integer(value) is None


@pytest.mark.parametrize(("value", "number"), [("15", 15), (15, 15), (" 0x1f ", 31), ("-1", -1)])
def test_a_number_is_one(value, number):
    assert text.integer(value) == number


def test_a_numa_node_below_zero_is_none():
    assert text.natural("-1") is None
    assert text.natural("4294967295") is None
    assert text.natural("0") == 0


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("0000:C9:00.0", "0000:c9:00.0"),
        ("05:00.0", "0000:05:00.0"),
        ("0003:00:03.0", "0003:00:03.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("N/A", None),
        (None, None),
        ("0000:c9:00.9", None),
    ],
)
def test_bus_address(value, address):
    assert text.bus_address(value) == address


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        ("0x12FE4F7FDAF06B9", "012fe4f7fdaf06b9"),
        ("GPU-9ff0c5f642c689c2", "9ff0c5f642c689c2"),
        ("8a3c5d1e01010101", "8a3c5d1e01010101"),
        ("0x0", None),
        ("GPU-XX", None),
        ("N/A", None),
    ],
)
def test_unique_id(value, identity):
    assert text.unique_id(value) == identity


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ("NPS1, SPX, 0", ("SPX", "NPS1")),
        ("CPX/NPS4", ("CPX", "NPS4")),
        ("N/A, N/A, 0", (None, None)),
        ("SPX\n", ("SPX", None)),
        (None, (None, None)),
    ],
)
def test_partition_modes(modes, expected):
    assert text.partition_modes(modes) == expected


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (observation.weight, "0"),
        (observation.hops, "0"),
        (observation.hops, "255"),
        (observation.bandwidth, "0-0"),
        (observation.bandwidth, "N/A"),
        (observation.link_type, "XXXX"),
        (observation.link_type, "SELF"),
    ],
)
def test_a_number_that_only_looks_present_is_unknown(reader, value):
    assert reader(value) is None
