# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Output of several hosts, wrapped, cut, or without a title: an error, never another host."""

import dataclasses
import io
import re
import tarfile

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from apiary.app.inputs import tree_text
from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers import system as printers_system
from tests.support.printers.machine import Machine, Wire

MESH = printers.mesh()
# Another host of the same kind with two hives, at other addresses.
OTHER = Machine(
    tuple(
        dataclasses.replace(card, bdf=f"0000:{0x10 + 8 * place:02x}:00.0")
        for place, card in enumerate(MESH.cards)
    ),
    lambda a, b: Wire() if a.numa == b.numa else Wire("PCIE", 72, 3),
)


def flat(machine):
    files = printers.kfd_files(machine)
    return "".join(f"==> {path} <==\n{text.strip()}\n\n" for path, text in files.items())


PRINTERS = {
    "rocm-smi topology": printers.rocm_smi_topology,
    "rocm-smi types": lambda machine: rocm.one_table(machine, "Link Type"),
    "rocm-smi identity": rocm.identity,
    "rocm-smi JSON": printers.rocm_smi_json,
    "amd-smi topology": printers.amd_smi_topology,
    "amd-smi topology 6.0": amd.topology_linear,
    "amd-smi topology JSON": printers.amd_smi_topology_json,
    "amd-smi old topology JSON": lambda machine: printers.amd_smi_topology_json(machine, old=True),
    "amd-smi list": amd.list_text,
    "amd-smi list JSON": printers.amd_smi_list_json,
    "amd-smi static": amd.static_text,
    "amd-smi static JSON": amd.static_json,
    "rocminfo": printers_system.rocminfo,
    "KFD": flat,
}


def codes(topology):
    return [finding.code for finding in topology.findings]


def errors(topology):
    return [finding.code for finding in topology.findings if finding.severity == "error"]


def refusal(text):
    with pytest.raises(ApiaryError) as refused:
        read(text, "t.txt")
    (finding,) = refused.value.findings
    return finding


@pytest.mark.parametrize("name", PRINTERS)
def test_two_hosts_in_one_file_are_refused(name):
    other = OTHER
    if name == "rocminfo":  # it has no addresses
        other = Machine(MESH.cards[:6])
    text = PRINTERS[name](MESH) + "--- gpu-002\n" + PRINTERS[name](other)
    assert refusal(text).code == "TOPO-SEVERAL-OUTPUTS"


@pytest.mark.parametrize("name", PRINTERS)
def test_the_same_output_twice_is_one_host(name):
    text = PRINTERS[name](MESH)
    once, twice = (read(one, "t.txt") for one in (text, text + "\n$ again\n" + text))
    assert (twice.gpus, twice.links) == (once.gpus, once.links)
    assert errors(twice) == []


def test_tables_of_other_sizes_are_two_hosts():
    four = printers.rocm_smi_topology(Machine(MESH.cards[:4]))
    assert refusal(printers.rocm_smi_topology(MESH) + four).code == "TOPO-SEVERAL-OUTPUTS"


@pytest.mark.parametrize("before", ["", "ERROR: "])
def test_a_gpu_that_answers_nothing_is_one(before):
    answer = f"{before}GPU[7]\t\t: Not supported on the given system"
    text = re.sub(
        r"^GPU\[7\].*PCI Bus: .*$", answer, rocm.bus_of_partitions(MESH, 1), flags=re.MULTILINE
    )
    topology = read(text, "bus.txt")
    assert [gpu.bdf for gpu in topology.gpus].count(None) == 1
    assert len(topology.gpus) == 8
    assert "TOPO-NO-BDF" in codes(topology)


@pytest.mark.parametrize("word", ["None", "n/a", "Unsupported", "N/A"])
@pytest.mark.parametrize("rows", ["one", "all"])
@pytest.mark.parametrize(
    ("layout", "cell"), [("4.x", "35.0c"), ("5.7", "35.0c"), ("6.1.1", "0x74a5"), ("6.1.1", r"\d")]
)
def test_no_word_in_a_row_loses_it(layout, cell, word, rows):
    count = 1 if rows == "one" else 8
    text = re.sub(
        rf"(?m)(^\d .*?\b){cell}\b", rf"\g<1>{word}", rocm.concise(MESH, layout), count=count
    )
    assert word in text
    assert len(read(text, "rocm-smi.txt").gpus) == 8


@pytest.mark.parametrize("layout", ["4.x", "5.7", "6.0", "6.1.1"])
def test_squeezed_blanks_lose_no_row(layout):
    text = rocm.concise(MESH, layout)
    squeezed = read(re.sub(r" +", " ", text), "t.txt")
    assert squeezed.gpus == read(text, "t.txt").gpus


def wrapped(text, width=80):
    parts = ([line[i : i + width] for i in range(0, len(line), width)] for line in text.split("\n"))
    return "\n".join("\n".join(part) for part in parts)


@pytest.mark.parametrize(
    "damage",
    [wrapped, lambda text: "\n".join(line[:80] for line in text.split("\n"))],
    ids=["wrapped", "cut"],
)
@pytest.mark.parametrize("name", ["rocm-smi topology", "rocm-smi types", "amd-smi topology"])
def test_a_table_wrapped_or_cut_at_80_columns_is_unknown(name, damage):
    topology = read(damage(PRINTERS[name](OTHER)), "t.txt")
    assert "TOPO-TRUNCATED" in errors(topology)
    assert topology.links == ()


@pytest.mark.parametrize("name", ["rocm-smi topology", "amd-smi topology", "amd-smi topology 6.0"])
@pytest.mark.parametrize("title", ["Weight|WEIGHT", "Hops|HOPS", "Link Type|LINK.TYPE"])
def test_a_lost_title_makes_nothing_of_its_table(name, title):
    machine = Machine(MESH.cards, lambda a, b: Wire(hops=3))
    text = re.sub(rf"(?m)^[= ]*(?:{title})[ :].*\n|^ +(?:{title}):\n", "", PRINTERS[name](machine))
    text = text.replace("LINK_ACCESSIBILITY:", "WEIGHT:") if "6.0" in name else text
    topology = read(text, "t.txt")
    assert {link.weight for link in topology.links} <= {15, None}
    assert {link.hops for link in topology.links} <= {3, None}
    assert "TOPO-TRUNCATED" in errors(topology) or "6.0" in name


@pytest.mark.parametrize(
    ("name", "first"), [("rocm-smi topology", "       GPU0"), ("amd-smi topology", " " * 13)]
)
def test_a_capture_that_starts_below_a_title_has_that_table_unknown(name, first):
    machine = Machine(MESH.cards, lambda a, b: Wire(hops=3))
    text = PRINTERS[name](machine)
    place = text.index(first, re.search("Hops|HOPS", text).start())
    topology = read(text[place:], "t.txt")
    assert {(link.type, link.weight, link.hops) for link in topology.links} == {
        ("xgmi", None, None)
    }
    assert "TOPO-TRUNCATED" in errors(topology)


@pytest.mark.parametrize("name", ["rocm-smi topology", "amd-smi topology"])
def test_a_row_that_comes_twice_makes_its_table_unknown(name):
    lines = PRINTERS[name](MESH).split("\n")
    title = next(place for place, line in enumerate(lines) if re.search("Weight|WEIGHT", line))
    row = lines[title + 3].replace("15", "30")
    topology = read("\n".join([*lines[: title + 4], row, *lines[title + 4 :]]), "t.txt")
    assert {link.weight for link in topology.links} == {None}
    assert errors(topology) == ["TOPO-TRUNCATED"]


@pytest.mark.parametrize("label", ["gpu-001: ", "10.0.0.1: ", "node7.example: "])
def test_the_name_that_pdsh_puts_before_each_line_is_taken_away(label):
    text = printers.rocm_smi_topology(MESH)
    named = "".join(f"{label}{line}".rstrip() + "\n" for line in text.splitlines())
    named += "pdsh@head: gpu-001: ssh exited with exit code 2\n"
    assert read(named, "t.txt").links == read(text, "t.txt").links


def test_several_names_are_several_hosts_even_where_they_print_the_same():
    text = printers.rocm_smi_topology(MESH)
    named = "".join(f"{name}: {line}\n" for name in ("a1", "a2") for line in text.splitlines())
    finding = refusal(named)
    assert finding.code == "TOPO-SEVERAL-OUTPUTS"
    assert "a1" in finding.message
    assert "a2" in finding.message


def test_all_gpus_are_no_selection():
    text = "$ amd-smi list -g all\n" + amd.list_text(MESH)
    assert "TOPO-SELECTED" not in codes(read(text, "t.txt"))
    text = text.replace("-g all", "-g 0")
    assert "TOPO-SELECTED" in codes(read(text, "t.txt"))


def in_a_container(nodes):
    files = printers.kfd_files(MESH)
    return {
        path: "" if re.search(rf"nodes/[{nodes}]/properties$", path) else text
        for path, text in files.items()
        if not re.search(rf"nodes/[{nodes}]/\w+/\d", path)
    }


def test_a_dump_of_a_container_is_whole():
    files = in_a_container("4-9")
    text = "".join(f"==> {path} <==\n{content}\n" for path, content in files.items())
    topology = read(text, "kfd.txt")
    assert len(topology.gpus) == 2
    assert errors(topology) == []
    assert "TOPO-GPU-LEFT-OUT" in codes(topology)


def test_a_dump_that_ends_at_an_empty_file_is_cut():
    text = flat(MESH)
    text = text[: text.index("nodes/9/properties <==\n") + len("nodes/9/properties <==\n")]
    assert "TOPO-TRUNCATED" in errors(read(text, "kfd.txt"))


def archive(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as target:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            target.addfile(member, io.BytesIO(content.encode()))
    return str(path)


@pytest.mark.parametrize(("ending", "mode"), [(".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar", "w")])
def test_an_archive_is_the_dump_of_its_files(tmp_path, ending, mode):
    files = {f"../host{path}": text for path, text in printers.kfd_files(MESH).items()}
    name = archive(tmp_path / f"gpu-001{ending}", files | {"../../etc/passwd": "x"}, mode)
    topology, dumped = read(tree_text(name), name), read(flat(MESH), "gpu-001.txt")
    assert (topology.gpus, topology.links) == (dumped.gpus, dumped.links)
    assert topology.host == "gpu-001"


@pytest.mark.parametrize("damage", ["cut", "no tar", "other files", "huge", "absent"])
def test_an_archive_that_is_no_tree_is_refused(tmp_path, damage, monkeypatch):
    path = tmp_path / "kfd.tar.gz"
    if damage != "absent":
        other = damage == "other files"
        archive(path, {"notes.txt": "x"} if other else printers.kfd_files(MESH))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-2000])
    if damage == "no tar":
        path.write_text("no such thing\n")
    if damage == "huge":
        monkeypatch.setattr("apiary.app.inputs._MOST_BYTES", 4096)
    with pytest.raises(ApiaryError) as refused:
        tree_text(str(path))
    (finding,) = refused.value.findings
    assert (finding.code, finding.subject) == ("FILE-UNREADABLE", str(path))


def test_what_two_commands_say_differently_is_no_refusal_of_evidence():
    bundle = printers.bundle(MESH)
    other = printers.rocm_smi_topology(OTHER)
    bundle["commands"]["rocm_smi_more"] = printers.command(other, "rocm-smi", "--showtopo")
    assert "TOPO-SEVERAL-OUTPUTS" not in codes(from_evidence(bundle))
