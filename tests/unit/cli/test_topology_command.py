# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary topology`: one capture or a fleet of them, tables, pictures, documents."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from apiary.app.cli import main
from support.shared import SHARED
from support.topology.pictured import BDFS, one_missing
from support.topology.topologies import mi325x

CAPTURES = SHARED / "captures"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A directory with two hosts, one file that is none, and a placement."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("a.json").write_text(dumps(mi325x()))
    Path("b.json").write_text(dumps(replace(one_missing(), host="gpu-002")))
    Path("bad.txt").write_text("no such thing\n")
    Path("cut.json").write_text(json.dumps(placement(BDFS[:4], BDFS[4:])))
    return tmp_path


def placement(*sets):
    """A placement document, as short as one may be."""
    return {
        "schema": "apiary.placement/v1",
        "host": "gpu-001",
        "cost_function": "fabric",
        "cost_fields": ["unlinked_pairs"],
        "cost": [0],
        "exact": True,
        "replicas": [{"gpus": list(keys), "cost": [0], "cpus": "0-63"} for keys in sets],
    }


def findings(capsys):
    return json.loads(capsys.readouterr().err)["findings"]


def test_one_bad_file_keeps_no_other_from_being_read(files, capsys):
    assert main(["topology", "a.json", "bad.txt", "b.json", "nowhere.txt"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "4 captures: 2 topologies; 2 refused"
    assert out.count("8 × MI325X") == out.count("7 × MI325X") == 1
    assert "error: TOPO-UNRECOGNISED: bad.txt: " in err
    assert "error: FILE-UNREADABLE: nowhere.txt: " in err
    assert "warning: TOPO-GPU-MISSING: gpu-001: " in err


def test_many_as_json_are_one_list_and_one_list_of_findings(files, capsys):
    assert main(["topology", "a.json", "bad.txt", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [len(one["gpus"]) for one in json.loads(out)] == [8]
    assert [one["code"] for one in json.loads(err)["findings"]] == ["TOPO-UNRECOGNISED"]


def test_one_bad_file_alone_is_one_finding(files, capsys):
    assert main(["topology", "bad.txt", "--json"]) == 1
    assert [one["code"] for one in findings(capsys)] == ["TOPO-UNRECOGNISED"]


def test_each_of_many_has_a_picture_of_its_own(files, capsys):
    Path("again.json").write_text(Path("a.json").read_text())
    assert main(["topology", "a.json", "b.json", "again.json", "--svg", "out/host.svg"]) == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "host-gpu-001-2.svg",
        "host-gpu-001.svg",
        "host-gpu-002.svg",
    ]


def test_a_host_name_is_no_path(files, capsys):
    Path("a.json").write_text(dumps(replace(mi325x(), host="../../etc/x")))
    assert main(["topology", "a.json", "b.json", "--svg", "out/host.svg"]) == 0
    assert Path("out/host-.._.._etc_x.svg").is_file()


def test_a_placement_colours_table_and_picture(files, capsys):
    command = ["topology", "a.json", "--placement", "cut.json", "--svg", "host.svg"]
    assert main(command) == 0
    assert Path("host.svg").read_text().count(">replica 1<") == 4
    table = capsys.readouterr().out
    assert re.search(rf"{BDFS[0]} .* 0\s*\n", table)
    assert re.search(rf"{BDFS[7]} .* 1\s*\n", table)


def test_a_placement_of_another_host_is_said_to_be(files, capsys):
    Path("cut.json").write_text(json.dumps(placement([BDFS[0], "0000:ff:00.0"])))
    assert main(["topology", "a.json", "--placement", "cut.json", "--json"]) == 0
    (found,) = findings(capsys)
    assert found["code"] == "TOPO-OTHER-PLACEMENT"
    assert "0000:ff:00.0" in found["message"]


def test_a_placement_is_drawn_on_its_own_host_only(files, capsys):
    command = ["topology", "a.json", "b.json", "--placement", "cut.json", "--svg", "host.svg"]
    assert main(command) == 0
    assert "replica 0" in Path("host-gpu-001.svg").read_text()
    # gpu-002 lacks a GPU of it.
    assert "replica 0" not in Path("host-gpu-002.svg").read_text()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{}", "DOC-SCHEMA"),
        ('{"schema": "apiary.plan/v1"}', "DOC-SCHEMA"),
        ('{"schema": "apiary.placement/v1"}', "DOC-MISSING"),
        ("{", "FILE-SYNTAX"),
        ("", "FILE-SYNTAX"),
    ],
)
def test_what_is_no_placement_is_one_finding(files, capsys, text, code):
    Path("cut.json").write_text(text)
    assert main(["topology", "a.json", "--placement", "cut.json", "--json"]) == 1
    assert [one["code"] for one in findings(capsys)] == [code]


def test_a_plan_and_a_placement_are_one_too_many(files, capsys):
    assert main(["topology", "a.json", "--plan", "p", "--placement", "cut.json"]) == 2


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not here")
def test_every_capture_is_read_and_drawn_or_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    names = sorted(str(path) for path in CAPTURES.iterdir())
    assert main(["topology", *names, "--svg", str(tmp_path / "host.svg")]) == 1
    out, err = capsys.readouterr()
    last = out.splitlines()[-1]
    match = re.fullmatch(
        r"(\d+) captures: (\d+) topologies, \d+ of them with errors; (\d+) refused", last
    )
    assert match, last
    count, read, refused = map(int, match.groups())
    assert count == len(names) == read + refused
    pictures = list(tmp_path.iterdir())
    assert len(pictures) == read
    for picture in pictures:
        ElementTree.parse(picture)  # noqa: S314 - our own
    assert "Traceback" not in out + err
    # A title is as long as a file's name; all else fits.
    wide = [line.rstrip() for line in out.splitlines() if len(line.rstrip()) > 80]
    assert wide == []
    with capsys.disabled():
        print(f"\n{last}")
