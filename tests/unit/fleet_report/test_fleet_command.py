# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary fleet report`: reads what lies there, loses no host, and says so by its exit code."""

import json

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.cost import with_cost
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Price
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from apiary.app.cli import main
from apiary.app.schemas import schema
from apiary.fleet.hosts import FleetHost
from apiary.fleet.report.inputs import directory_of
from support.acceptances import RUN, inputs, write_inputs
from support.bench.documents import bench
from support.surveys import inventory_of

COUNT = 24
# These documents grow old.
LATE = ("--stale", "99999d")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    write_inputs(folder, inputs(COUNT))
    return folder


@pytest.fixture
def inventory(tmp_path, artifacts):
    path = tmp_path / "hosts.yml"
    path.write_text(inventory_of(COUNT + 2, artifacts), encoding="utf-8")
    return path


def ran(capsys, *words):
    code = main(["fleet", "report", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_hosts_of_the_inventory_without_data_are_shown(capsys, inventory, golden):
    code, out, err = ran(capsys, "-i", inventory, *LATE)
    assert code == 1
    assert "FLEET-REPORT-UNKNOWN" in err
    assert "gpu-[0025:0026]" in err
    golden("fleet/report.txt", out)


def test_they_may_be_allowed(capsys, inventory):
    code, _out, err = ran(capsys, "-i", inventory, "--allow-unreached", *LATE)
    assert code == 0
    assert "warning: FLEET-REPORT-UNKNOWN" in err


def test_json_is_the_document(capsys, inventory):
    code, out, _err = ran(capsys, "-i", inventory, "--json")
    told = json.loads(out)
    assert code == 1
    assert told["schema"] == "apiary.fleet-report/v1"
    assert len(told["hosts"]) == COUNT + 2
    assert {one["place"]["rack"] for one in told["hosts"]} == {"r001", "r002", "r003", "r004"}


def test_without_an_inventory_the_hosts_with_documents_are_meant(capsys, artifacts):
    code, out, _err = ran(capsys, "--artifacts", artifacts, *LATE)
    assert code == 0
    assert out.startswith(f"accepted: {COUNT} hosts")


def test_an_old_acceptance_is_told(capsys, artifacts):
    code, out, _err = ran(capsys, "--artifacts", artifacts, "--stale", "1s")
    assert code == 0
    assert "FLEET-REPORT-STALE" in out


def test_limit_leaves_the_rest_out(capsys, inventory):
    _code, out, _err = ran(capsys, "-i", inventory, "--limit", "rack_r001", *LATE)
    assert out.startswith("accepted: 8 hosts")


def test_the_page_is_written(capsys, inventory, tmp_path):
    out = tmp_path / "fleet.html"
    code, said, _err = ran(capsys, "-i", inventory, "--out", out)
    assert code == 1
    assert f"wrote {out} (0." in said
    text = out.read_text(encoding="utf-8")
    assert "gpu-0026" in text
    assert "26 hosts" in text


def test_damaged_documents_lose_no_host(capsys, tmp_path):
    write_inputs(tmp_path, inputs(4))
    (tmp_path / "gpu-0001/acceptance.json").write_text("{", encoding="utf-8")
    (tmp_path / "gpu-0002/acceptance.json").write_text('{"schema": "x"}', encoding="utf-8")
    (tmp_path / "gpu-0003/survey.json").write_text("[]", encoding="utf-8")
    code, out, _err = ran(capsys, "--artifacts", tmp_path, "--json", *LATE)
    told = {one["host"]: one for one in json.loads(out)["hosts"]}
    assert code == 1
    assert {name: one["state"] for name, one in told.items()} == {
        "gpu-0001": "failing",
        "gpu-0002": "failing",
        "gpu-0003": "failing",
        "gpu-0004": "ok",
    }
    assert {one["code"] for one in told["gpu-0002"]["findings"]} >= {"DOC-SCHEMA"}


def test_a_damaged_last_run_loses_no_host(capsys, tmp_path):
    write_inputs(tmp_path, inputs(3))
    (path,) = tmp_path.glob("fleet/runs/*/run.json")
    path.write_text('{"schema": "apiary.fleet-roll')
    code, out, err = ran(capsys, "--artifacts", tmp_path, *LATE)
    assert code == 1
    assert "3 hosts" in out
    assert str(path) in err


def test_a_check_is_not_how_a_rollout_ended(capsys, tmp_path):
    write_inputs(tmp_path, inputs(3))
    (path,) = tmp_path.glob("fleet/runs/*/run.json")
    later = json.loads(path.read_text())
    later["id"], later["asked"]["check"] = "99990101T000000Z", True
    own = tmp_path / "fleet/runs" / later["id"] / "run.json"
    own.parent.mkdir()
    own.write_text(json.dumps(later))
    _code, out, _err = ran(capsys, "--artifacts", tmp_path, *LATE)
    assert f"Rollout {RUN}: done" in out
    _code, out, _err = ran(capsys, "--artifacts", tmp_path, "--run", later["id"], *LATE)
    assert f"Rollout {later['id']}: done" in out


def test_a_run_by_its_name(capsys, artifacts):
    _code, out, _err = ran(capsys, "--artifacts", artifacts, "--run", RUN)
    assert f"Rollout {RUN}: done" in out
    code, _out, err = ran(capsys, "--artifacts", artifacts, "--run", "none")
    assert code == 1
    assert RUN in err


@pytest.mark.parametrize(
    "words", [("--limit", "x"), ("--stale", "soon"), ("--no-such-option",), ("stray",)]
)
def test_wrong_usage(capsys, words):
    assert ran(capsys, *words)[0] == 2


def test_artifacts_that_are_not_there(capsys, tmp_path):
    code, _out, err = ran(capsys, "--artifacts", tmp_path / "none")
    assert code == 1
    assert "FILE-UNREADABLE" in err


def test_a_name_that_is_a_path_stays_inside(tmp_path):
    for name in ("../x", "..", "/etc", "a/b"):
        found = directory_of(FleetHost(name), tmp_path).resolve()
        assert found.parent == tmp_path


def test_what_serving_takes_is_that_of_the_newest_benchmark(capsys, tmp_path):
    write_inputs(tmp_path, inputs(2))
    priced = with_cost(bench("qwen3", steps=(1,), engine_runs=1), Price(2.1, "EUR"))
    for name, time, text in (
        ("qwen3", "20261121T050000Z", "old"),
        ("qwen3", "20261122T050000Z", dumps(priced)),
        ("broken", "20261122T050000Z", '{"searches": [{"cost": 5}], "created": 1}'),
        ("without", "20261122T050000Z", dumps(bench("x", steps=(1,), slo=()))),
    ):
        path = tmp_path / "bench" / name / time / "bench.json"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    words = ("--artifacts", tmp_path, *LATE)

    _code, out, _err = ran(capsys, *words, "--out", tmp_path / "fleet.html", "--json")
    broken, known = json.loads(out)["costs"]
    jsonschema.validate(json.loads(out), schema("fleet-report"))
    assert (known["deployment"], known["measured"]) == ("qwen3", "2026-11-22T05:00:00Z")
    assert known["price"] == {"gpu_hour": 2.1, "currency": "EUR"}
    assert known["money"]["request"]["mean"] > 0
    assert broken["text"] == ["its result cannot be read"]

    _code, out, _err = ran(capsys, *words)
    page = (tmp_path / "fleet.html").read_text(encoding="utf-8")
    for text in (" ".join(out.split()), page):
        assert "qwen3: " in text
        assert "EUR per million output tokens" in text
        assert "broken: its result cannot be read" in text
        assert "without:" not in text
