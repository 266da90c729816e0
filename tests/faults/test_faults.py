# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every fault that the lab can inject, end to end.

Evidence comes over SSH, with what the real rocm-smi says on the broken host; then the topology,
the findings, and where replicas go.
"""

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field

import pytest

from .conftest import NAME, ROOT, apiary

BUSES = ("05", "26", "46", "65", "85", "a6", "c6", "e5")
KEYS = tuple(f"0000:{bus}:00.0" for bus in BUSES)
# On this host the kernel sees the GPUs in another order than the bus has them.
HIP = (1, 3, 2, 0, 5, 7, 6, 4)
# Sets of GPU numbers, in bus order.
HALVES = ({0, 1, 2, 3}, {4, 5, 6, 7})
SECOND_HALF = HALVES[1:]
EACH = tuple({number} for number in range(8))
MESH = {"xgmi": 28}


@dataclass(frozen=True)
class Case:
    """A broken host: options of the lab, and what is right to say of it.

    ``cuts`` has the GPUs of each replica by (TP, replicas), None where no such cut exists, or
    a pair of GPUs that must not share a replica, for hosts on which several cuts are as good.
    """

    options: tuple[str, ...]
    codes: frozenset[str] = frozenset()
    gpus: int = 8
    links: dict[str, int] = field(default_factory=lambda: MESH)
    cuts: dict[tuple[int, int], object] = field(default_factory=lambda: {(4, 2): HALVES})
    seen_by_rocm_smi: int = 8


def fault(*faults, codes=(), options=(), **expected):
    words = [word for one in faults for word in ("--fault", one)]
    return Case((*words, *options), frozenset(f"TOPO-{code}" for code in codes), **expected)


def complete(count):
    return {"xgmi": count * (count - 1) // 2}


SEVEN = {"links": complete(7), "cuts": {(4, 2): None, (4, 1): SECOND_HALF}, "seen_by_rocm_smi": 7}
PARTITIONS = {"gpus": 64, "links": complete(64), "cuts": {(8, 8): EACH}}

CASES = {
    "none": fault(),
    "none, kernel in bus order": fault(options=("--kfd-order", "bdf")),
    "none, BMC": fault(options=("--bmc",)),
    "missing=3": fault("missing=3", codes=["GPU-MISSING"], gpus=7, **SEVEN),
    "nokfd=2": fault("nokfd=2", codes=["GPU-UNUSABLE"], **SEVEN),
    "nodriver": fault(
        "nodriver", codes=["NO-GPUS"], gpus=0, links={}, cuts={(4, 2): None}, seen_by_rocm_smi=0
    ),
    "pcie=0:3": fault(
        "pcie=0:3", codes=["XGMI-ABSENT"], links={"xgmi": 27, "pcie": 1}, cuts={(4, 2): (0, 3)}
    ),
    "pcie=0:5": fault("pcie=0:5", codes=["XGMI-ABSENT"], links={"xgmi": 27, "pcie": 1}),
    "missing=3 pcie=0:5": fault(
        "missing=3",
        "pcie=0:5",
        codes=["GPU-MISSING", "XGMI-ABSENT"],
        gpus=7,
        **SEVEN | {"links": {"xgmi": 20, "pcie": 1}},
    ),
    "hives=0,1,2,3/4,5,6,7": fault(
        "hives=0,1,2,3/4,5,6,7", codes=["XGMI-SPLIT"], links={"xgmi": 12, "pcie": 16}
    ),
    "hives=0,2,3,7/1,4,5,6": fault(
        "hives=0,2,3,7/1,4,5,6",
        codes=["XGMI-SPLIT"],
        links={"xgmi": 12, "pcie": 16},
        cuts={(4, 2): ({0, 2, 3, 7}, {1, 4, 5, 6})},
    ),
    "hives=0,1,2,4,5,6,7/3": fault(
        "hives=0,1,2,4,5,6,7/3",
        codes=["XGMI-ISOLATED"],
        links={"xgmi": 21, "pcie": 7},
        cuts={(4, 1): SECOND_HALF},
    ),
    "hives=0": fault("hives=0", codes=["XGMI-NONE"], links={"pcie": 28}),
    "weight=0:1:30": fault(
        "weight=0:1:30", codes=["ASYMMETRY", "XGMI-INDIRECT"], cuts={(4, 2): (0, 1)}
    ),
    "weight=0:1:30 weight=1:0:30": fault(
        "weight=0:1:30", "weight=1:0:30", codes=["XGMI-INDIRECT"], cuts={(4, 2): (0, 1)}
    ),
    "numa=3:1": fault("numa=3:1", codes=["NUMA-IMBALANCE"]),
    "numa=3:-1": fault("numa=3:-1", codes=["NUMA-UNKNOWN"]),
    "numa=all:-1": fault("numa=all:-1", codes=["NUMA-UNKNOWN"]),
    "numa=3:5": fault("numa=3:5", codes=["NUMA-STRAY", "SOURCES-DISAGREE"]),
    "vram=4:1073741824": fault("vram=4:1073741824", codes=["VRAM"]),
    "linkwidth=2:8": fault("linkwidth=2:8", codes=["PCIE-LINK"]),
    "linkspeed=2:16": fault("linkspeed=2:16", codes=["PCIE-LINK"]),
    "slotwidth=2:8": fault("slotwidth=2:8", codes=["PCIE-LINK"]),
    "ue=6:3": fault("ue=6:3", codes=["MEMORY-ERRORS"]),
    "vf": fault("vf", codes=["VIRTUAL-FUNCTION"]),
    "vf missing=3": fault("vf", "missing=3", codes=["VIRTUAL-FUNCTION"], gpus=7, **SEVEN),
    "partition=2:CPX": fault(
        "partition=2:CPX",
        codes=["PARTITION-MIXED"],
        gpus=15,
        links=complete(15),
        cuts={(8, 1): ({2},)},
    ),
    "partition=all:CPX": fault("partition=all:CPX", **PARTITIONS),
    "partition=all:CPX --bmc": fault(
        "partition=all:CPX",
        options=("--bmc",),
        codes=["PARTITION-COUNT"],
        gpus=63,
        links=complete(63),
        cuts={(8, 8): None, (7, 8): EACH},
    ),
    "partition=all:CPX memory=all:NPS4": fault(
        "partition=all:CPX", "memory=all:NPS4", codes=["MEMORY-PARTITION"], **PARTITIONS
    ),
    "partition=all:DPX memory=all:NPS2": fault(
        "partition=all:DPX",
        "memory=all:NPS2",
        codes=["MEMORY-PARTITION"],
        gpus=16,
        links=complete(16),
        cuts={(2, 8): EACH},
    ),
}


# Other forms of a fault that CI tries once.
FORMS = (
    *("none, kernel in bus order", "none, BMC", "pcie=0:3", "missing=3 pcie=0:5", "numa=all:-1"),
    *("hives=0,2,3,7/1,4,5,6", "weight=0:1:30 weight=1:0:30", "vf missing=3"),
    *("partition=all:CPX --bmc", "partition=all:DPX memory=all:NPS2"),
)


def numbers(keys):
    """GPU numbers in bus order of keys, partitions as their GPU."""
    return {KEYS.index(key.partition("#")[0]) for key in keys}


def told(topology):
    """Codes of what was found; that newer tools number GPUs otherwise than HIP is no fault."""
    return {one["code"] for one in topology["findings"]} - {"TOPO-INDEX-ORDER"}


def link_counts(topology):
    return dict(Counter(link["type"] for link in topology["links"]))


def rocm_smi_alone(file, out):
    """The same evidence as if nothing but rocm-smi could be had."""
    evidence = json.loads(file.read_text())
    evidence["files"] = evidence["links"] = {}
    evidence["commands"] = {
        name: told for name, told in evidence["commands"].items() if name.startswith("rocm_smi")
    }
    path = out / "rocm-smi-alone.json"
    path.write_text(json.dumps(evidence))
    return path


def cut(file, tp, count):
    """Exit code and GPU numbers of each replica, None with an error that says why."""
    code, placement, said = apiary("place", file, "--tp", tp, "--replicas", count, "--json")
    findings = [*placement.get("findings", []), *said]
    errors = [one for one in findings if one["severity"] == "error"]
    assert code == (1 if errors else 0), findings
    if errors:
        assert all(one["remedy"] for one in errors)
        return None
    replicas = [one["gpus"] for one in placement["replicas"]]
    assert [len(gpus) for gpus in replicas] == [tp] * count
    assert len({gpu for gpus in replicas for gpu in gpus}) == tp * count
    return sorted((numbers(gpus) for gpus in replicas), key=sorted)


def shown(tp, count, sets):
    inside = " | ".join(",".join(map(str, sorted(one))) for one in sets or ())
    return f"TP{tp} × {count}: {inside or 'impossible'}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.night] * (name in FORMS)) for name in CASES]
)
def test_a_fault_is_found_and_placed_around(name, host, tmp_path, rows):
    case = CASES[name]
    host.change(*case.options)
    file = host.probe(tmp_path)

    _code, topology, _said = apiary("topology", file, "--json")
    bare = [gpu["bdf"] for gpu in topology["gpus"]]
    assert len(bare) == case.gpus
    assert bare == sorted(bare)
    assert link_counts(topology) == case.links
    assert told(topology) == case.codes
    assert any(source.startswith("rocm-smi") for source in topology["sources"])

    # What the tool says by itself is no smaller node, and its links are the same.
    _code, alone, _said = apiary("topology", rocm_smi_alone(file, tmp_path), "--json")
    assert len(alone["gpus"]) in (case.seen_by_rocm_smi, case.gpus)
    if case.gpus <= len(KEYS):
        assert link_counts(alone) == case.links

    for (tp, count), expected in case.cuts.items():
        sets = cut(file, tp, count)
        if isinstance(expected, tuple) and isinstance(expected[0], int):
            assert not any(set(expected) <= one for one in sets)
            assert set.union(*sets) == set(range(8))
        else:
            assert sets == (None if expected is None else sorted(expected, key=sorted))
        codes = " ".join(sorted(case.codes)) or "–"
        rows.append((name, str(case.gpus), codes, shown(tp, count, sets)))


@pytest.mark.parametrize(("order", "hip"), [((), HIP), (("--kfd-order", "bdf"), tuple(range(8)))])
def test_hip_ordinals_are_those_of_the_kernel_and_not_of_the_bus(order, hip, host, tmp_path):
    host.change(*order)
    _code, topology, _said = apiary("topology", host.probe(tmp_path), "--json")
    assert tuple(gpu["hip_ordinal"] for gpu in topology["gpus"]) == hip
    assert tuple(int(gpu["render_node"][7:]) - 128 for gpu in topology["gpus"]) == hip


def test_the_ansible_module_gathers_the_same(host, tmp_path):
    host.change("--fault", "pcie=0:5")
    gathered = tmp_path / "module.json"
    playbook = ["ansible-playbook", "-i", "inventory/lab", "tests/faults/gather.yml"]
    subprocess.run(
        [*playbook, "-e", f"evidence_file={gathered}"],
        cwd=ROOT,
        env={**os.environ, "APIARY_LAB": NAME, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        check=True,
    )
    _code, module, _said = apiary("topology", gathered, "--json")
    _code, probed, _said = apiary("topology", host.probe(tmp_path), "--json")
    assert module == probed
    assert told(probed) == {"TOPO-XGMI-ABSENT"}


def test_every_fault_of_the_lab_is_here():
    """A fault that nobody tests is one that nobody knows to be found."""
    table = (ROOT / "tests/lab/README.md").read_text().split("## Faults")[1]
    names = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    tested = {word.partition("=")[0] for case in CASES.values() for word in case.options}
    assert {name.partition("=")[0] for name in names} == tested - {
        *("--fault", "--bmc", "--kfd-order", "bdf")
    }
