# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine prints, read back, is the machine; whatever else is read raises nothing odd."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from hypothesis import given
from hypothesis import strategies as st

from tests.support.printers import machine as printers
from tests.support.printers.machine import Card, Machine, Wire


@st.composite
def machines(draw, least=1):
    """Any host: buses, kernel order, NUMA nodes and hives of its GPUs are independent."""
    buses = draw(st.lists(st.integers(1, 254), min_size=least, max_size=8, unique=True))
    ranks = draw(st.permutations(range(len(buses))))
    hives = draw(st.lists(st.integers(0, 2), min_size=len(buses), max_size=len(buses)))
    numa = draw(st.lists(st.integers(0, 1), min_size=len(buses), max_size=len(buses)))
    weight = draw(st.sampled_from((0, 15, 30, 45)))
    bandwidth = draw(st.sampled_from(((0, 0), (50000, 50000), (50000, 200000))))
    cards = tuple(
        Card(f"0000:{bus:02x}:00.0", rank, node)
        for bus, rank, node in zip(sorted(buses), ranks, numa, strict=True)
    )
    hive_of = dict(zip((card.bdf for card in cards), hives, strict=True))

    def wire(a, b):
        if hive_of[a.bdf] == hive_of[b.bdf]:
            return Wire("XGMI", weight, 1, bandwidth)
        near = a.numa == b.numa
        return Wire("PCIE", 40 if near else 72, 2 if near else 3, (0, 0))

    return Machine(cards, wire)


def expected_links(machine):
    """Type, hops and weight of each pair by address, weight 0 being unknown."""
    links = {}
    for i, j in machine.pairs():
        a, b = machine.cards[i], machine.cards[j]
        wire = machine.wire(a, b)
        links[a.bdf, b.bdf] = (wire.type.lower(), wire.hops, wire.weight or None)
    return links


def read_links(topology, machine):
    """The same of a topology; GPU<i> of a capture without addresses is the i-th card."""
    names = {f"GPU{i}": card.bdf for i, card in enumerate(machine.cards)}
    return {
        tuple(sorted((names.get(link.a, link.a), names.get(link.b, link.b)))): (
            link.type,
            link.hops,
            link.weight,
        )
        for link in topology.links
    }


PRINTERS = {
    "rocm-smi text": printers.rocm_smi_topology,
    "rocm-smi JSON": printers.rocm_smi_json,
    "amd-smi text": printers.amd_smi_topology,
    "amd-smi JSON": printers.amd_smi_topology_json,
    "amd-smi old JSON": lambda machine: printers.amd_smi_topology_json(machine, old=True),
}


@pytest.mark.parametrize("tool", PRINTERS)
@given(machine=machines())
def test_what_a_tool_prints_is_read_back(tool, machine):
    topology = read(PRINTERS[tool](machine), "capture")
    assert len(topology.gpus) == len(machine.cards)
    assert read_links(topology, machine) == expected_links(machine)


SOURCES = {
    "sysfs": {"rocm_smi": False, "amd_smi": False},
    "rocm-smi": {"sysfs": False, "amd_smi": False},
    "amd-smi": {"sysfs": False, "rocm_smi": False},
    "all": {},
}


@pytest.mark.parametrize("sources", SOURCES)
@given(machine=machines())
def test_every_source_gives_the_same_host(sources, machine):
    topology = from_evidence(printers.bundle(machine, **SOURCES[sources]))
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in machine.cards]
    assert read_links(topology, machine) == expected_links(machine)
    assert "TOPO-SOURCES-DISAGREE" not in [finding.code for finding in topology.findings]
    if sources != "rocm-smi":
        assert [gpu.hip_ordinal for gpu in topology.gpus] == [card.rank for card in machine.cards]


@given(machine=machines(), data=st.data())
def test_the_tools_numbering_does_not_matter(machine, data):
    order = data.draw(st.permutations(range(len(machine.cards))))
    other = Machine(tuple(machine.cards[i] for i in order), machine.wire)
    one = from_evidence(printers.bundle(machine, amd_smi=False))
    two = from_evidence(printers.bundle(other, amd_smi=False))
    assert two.links == one.links
    assert [dataclasses.replace(gpu, smi_index=None) for gpu in two.gpus] == [
        dataclasses.replace(gpu, smi_index=None) for gpu in one.gpus
    ]


@given(machine=machines())
def test_a_topology_survives_being_written(machine):
    topology = from_evidence(printers.bundle(machine))
    assert read(dumps(topology), "topology.json") == topology


@pytest.mark.parametrize("tool", ["rocm-smi text", "rocm-smi JSON", "amd-smi text", "amd-smi JSON"])
@given(machine=machines(least=2), share=st.floats(0, 0.999))
def test_cut_output_is_never_a_smaller_host(tool, machine, share):
    text = PRINTERS[tool](machine).rstrip()
    try:
        topology = read(text[: int(len(text) * share)], "cut")
    except ApiaryError:
        return
    told = [finding.severity for finding in topology.findings if finding.severity != "info"]
    assert len(topology.gpus) == len(machine.cards) or told


def well_behaved(text, name):
    """Say whether text is read, or refused with one finding."""
    try:
        return isinstance(read(text, name), Topology)
    except ApiaryError as refusal:
        return len(refusal.findings) == 1


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(text):
    assert well_behaved(text, "any")


PIECES = (
    "GPU0;GPU1;GPU[0];GPU: 0;\t\t: ;PCI Bus: ;0000:05:00.0;\n;\n; ;"
    "==== Weight between two GPUs ====;"
    "LINK TYPE TABLE:;XGMI;15;N/A;65535;==> nodes/1/properties <==;simd_count;[{;]};(Topology) ;"
    'Numa Node: -1;    BDF: ;Agent 1;HSA System Attributes;...;|;{"card0": ;"gpu";: 0;}'
)
TOKENS = st.sampled_from(PIECES.split(";"))


@given(st.lists(TOKENS, max_size=40).map("".join))
def test_shuffled_pieces_of_output_are_read_or_refused(text):
    assert well_behaved(text, "any")


KEYS = (
    "gpu bdf links card0 system gpu_data link_type weight gpu_0 asic bus numa vram size partition "
    "schema error"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused(document):
    assert well_behaved(dumps(document), "any.json")
