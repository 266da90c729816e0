# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary finding`: a code's page, an area's codes, all areas; and that nothing is left unsaid."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from apiary.app.cli import cli, main
from apiary.help.finding_command import areas, catalogue, see_also

ROOT = Path(__file__).parents[3]


def test_a_page_says_what_shows_it_and_what_to_do(capsys):
    assert main(["finding", "TOPO-TRUNCATED"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("TOPO-TRUNCATED (error)\n")
    words = " ".join(said.split())
    entry = catalogue()["TOPO-TRUNCATED"]
    assert f"meaning {entry.meaning} evidence {entry.evidence} remedy {entry.remedy}" in words


@pytest.mark.parametrize("given", ["topo-truncated", "TOPO-TRUNCATED:", " TOPO-TRUNCATED "])
def test_a_code_is_taken_as_it_is_copied(given, capsys):
    assert main(["finding", given]) == 0
    assert "TOPO-TRUNCATED" in capsys.readouterr().out


def test_an_area_lists_its_codes_and_no_others(capsys):
    assert main(["finding", "router", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    codes = [one["code"] for one in told["findings"]]
    assert codes == [code for code in catalogue() if code.startswith("ROUTER-")]


def test_without_a_code_all_areas_are_listed(capsys):
    assert main(["finding", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["areas"]
    assert sum(row["codes"] for row in rows) == len(catalogue())


def test_a_misspelt_code_names_those_that_are_alike(capsys):
    assert main(["finding", "TOPO-TRUNCATE"]) == 1
    said = capsys.readouterr().err
    assert "EXPLAIN-NO-FINDING: TOPO-TRUNCATE" in said
    assert "the nearest: TOPO-TRUNCATED" in said


def test_json_has_the_whole_page(capsys):
    assert main(["finding", "TOPO-XGMI-DOWN", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "apiary.finding-page/v1"
    assert told["severity"] == "warning"
    assert "TOPO-XGMI-SPLIT" in told["see_also"]


def test_the_shell_completes_codes():
    complete = ShellComplete(cli, {}, "apiary", "_APIARY_COMPLETE")
    found = [one.value for one in complete.get_completions(["finding"], "topo-xgmi-d")]
    assert found == ["TOPO-XGMI-DOWN"]


def test_every_code_says_what_shows_it():
    """A new code needs `evidence:` beside its meaning in knowledge/findings."""
    silent = {
        code for code, entry in catalogue().items() if len(entry.evidence) < len("`df PATH`.")
    }
    assert silent == set()
    assert {code for code, one in catalogue().items() if not one.evidence.endswith(".")} == set()


def test_every_code_is_printed_by_a_file_that_there_is():
    spec = importlib.util.spec_from_file_location("printed", ROOT / "tools/docs/printed.py")
    printed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(printed)
    files = {code: printed.printed_by(code) for code in catalogue()}
    assert "plugins/plugin_utils/topology/problems.py" in files["TOPO-TRUNCATED"]
    assert {code for code, found in files.items() if not found} == set()
    named = {file for found in files.values() for file in found}
    assert {file for file in named if not (ROOT / file).is_file()} == set()


def test_every_area_is_described_and_its_pages_exist():
    assert {entry.area for entry in catalogue().values()} <= set(areas())
    pages = {page for area in areas().values() for page in area.reading}
    generated = {"reference/schemas.md"}
    missing = {page for page in pages - generated if not (ROOT / "docs" / page).is_file()}
    assert missing == set()


def test_see_also_is_mutual():
    for entry in catalogue().values():
        for other in see_also(entry):
            assert entry.code in see_also(catalogue()[other])
