# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary topology --explain`: which lines of a capture gave which fact, and which gave none."""

import json
import sys

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.explain import explain

from apiary.app.cli import main
from support.topology.topologies import mi325x
from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm

MESH = printers.mesh()
TWO = printers.Machine((printers.Card("0000:05:00.0", 0), printers.Card("0000:26:00.0", 1)))
ROCM_SMI = (
    "root@gpu-001:~# rocm-smi --showbus --showtopo\n"
    + rocm.bus_of_partitions(TWO, 1)
    + "GPU[0]\t\t: Flux Capacitor (GW): 1.21\n"
    + printers.rocm_smi_topology(TWO)
)


@pytest.fixture
def capture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "capture.txt").write_text(ROCM_SMI)
    (tmp_path / "list.json").write_text(printers.amd_smi_list_json(TWO))
    (tmp_path / "document.json").write_text(dumps(mi325x()))


def test_each_line_says_what_it_gave(capture, golden, capsys):
    assert main(["topology", "capture.txt", "--explain"]) == 0
    golden("topology/explain.txt", capsys.readouterr().out)


def test_the_same_as_a_document(capture, capsys):
    assert main(["topology", "capture.txt", "--explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["topology"]["gpus"]) == 2
    given = {fact: line["first"] for line in document["lines"] for fact in line["facts"]}
    lines = ROCM_SMI.split("\n")
    assert lines[given["numa node of GPU 1"] - 1] == "GPU[1]\t\t: (Topology) Numa Affinity: 0"
    (unknown,) = [line for line in document["lines"] if "Flux" in line["text"]]
    assert (unknown["role"], unknown["facts"]) == ("nothing", [])


def test_values_of_json_are_explained_by_their_line(capture, capsys):
    assert main(["topology", "list.json", "--explain", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    given = {line["text"].split('"')[1]: line["facts"] for line in lines if '"' in line["text"]}
    assert given["hip_uuid"] == ["unique id of GPU 1"]
    assert given["uuid"] == []


def test_prefixes_and_long_texts_change_no_number(monkeypatch):
    plain = explain(amd.list_text(TWO), "l").lines
    numbered = "".join(f"0: {line}\n" for line in amd.list_text(TWO).splitlines())
    assert explain(numbered, "l").lines == plain
    text = printers.rocm_smi_topology(MESH)
    monkeypatch.setattr(sys.modules[explain.__module__], "_BUDGET", 1)
    longer = explain(text, "l").lines
    assert longer[0].last > longer[0].first
    assert longer[-1].last == len(text.splitlines())


@pytest.mark.parametrize(
    "words", [["document.json"], ["capture.txt", "list.json"], ["capture.txt", "--svg", "a.svg"]]
)
def test_only_one_output_is_explained(capture, words, capsys):
    assert main(["topology", *words, "--explain"]) == 2


def test_what_is_refused_is_refused_in_its_own_words(capture, tmp_path, capsys):
    (tmp_path / "cut.txt").write_text(ROCM_SMI[: len(ROCM_SMI) // 2])
    assert main(["topology", "cut.txt", "--explain"]) == 1
    assert "TOPO-TRUNCATED" in capsys.readouterr().err


def test_rows_that_begin_with_an_address_give_what_they_have():
    lines = explain(printers.amd_smi_topology(TWO), "t.txt").lines
    (row,) = [line for line in lines if line.text.startswith("0000:05:00.0 0            15")]
    assert (row.role, row.facts) == ("fact", ("weight of GPU 0 – GPU 1",))
