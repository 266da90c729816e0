# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary plan` with an open layout: the table, the document, and what is refused."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document

from apiary.app.cli import main
from apiary.app.schemas import schema
from engine.models import published
from support.demo import demo_deployment
from support.topology.topologies import mi325x


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Run `apiary plan` with some fields of the demo's deployment changed."""
    monkeypatch.chdir(tmp_path)
    Path("host.json").write_text(dumps(mi325x()))

    def plan(*options, **changes):
        asked = to_document(demo_deployment()) | changes
        asked["engine"] |= {"version": "0.24.0"}
        Path("deployment.yml").write_text(yaml.safe_dump(asked))
        return main(["plan", "deployment.yml", "host.json", *options])

    return plan


def test_the_table_has_the_choice_the_alternatives_and_the_reasons(plan, capsys):
    assert plan(layout="auto", profile="throughput") == 0
    out, err = capsys.readouterr()
    assert "layouts, in the order preferred for throughput (profile throughput)" in out
    lines = out.splitlines()
    (chosen,) = [line for line in lines if "│ chosen " in line]
    assert "DP2/TP4/EP4" in chosen
    assert "55.1" in chosen
    assert "ENGINE-MOE-BLOCK" in out
    assert "1536" in out
    assert sum("│ possible " in line for line in lines) >= 5
    assert "LAYOUT-NOT-MEASURED" in err
    assert "measure" in err


def test_a_table_has_as_many_layouts_as_are_read(plan, capsys):
    Path("config.json").write_text(json.dumps(published()["Qwen/Qwen3-30B-A3B"]))
    asked = {"layout": "auto", "model": {"name": "local/small", "path": "/m"}}
    assert plan("--json", "--model", "config.json", **asked) == 0
    considered = json.loads(capsys.readouterr().out)["layouts"]["considered"]
    possible = [one["name"] for one in considered if one["verdict"] != "dropped"]
    assert len(possible) > 12
    assert plan("--model", "config.json", **asked) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "│ chosen " in line or "│ possible " in line]
    assert len(rows) == 9
    assert f"{len(possible) - 8} more" in rows[-1]


def test_a_fixed_layout_has_no_table(plan, capsys):
    assert plan() == 0
    assert "preferred" not in capsys.readouterr().out


def test_the_document_has_all_of_it_and_matches_its_schema(plan, capsys):
    assert plan("--json", layout={"expert_parallel": True, "concurrency": 8}) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("plan"))
    layouts = document["layouts"]
    assert layouts["preference"] == "low-latency"
    assert layouts["because"] == "8 requests at once"
    assert layouts["considered"][0]["name"] == "DP1/TP8/EP8"
    assert {one["verdict"] for one in layouts["considered"]} == {"chosen", "possible", "dropped"}
    assert all(one["source"] for one in layouts["order"])
    assert document["deployment"]["layout"]["tensor_parallel_size"] == "auto"
    assert document["layout"] == {
        "tensor_parallel_size": 8,
        "replicas": 1,
        "expert_parallel": True,
        "pipeline_parallel_size": 1,
        "nodes": 1,
    }


@pytest.mark.parametrize(
    "layout",
    [
        "auto",
        {"expert_parallel": True},
        {"tensor_parallel_size": 4, "replicas": "auto"},
        {"tensor_parallel_size": 4},
        {"sizes": [4, 2, 2], "expert_parallel": True},
        {"replicas": 2, "spare": 2, "sequence_tokens": 5740},
    ],
)
def test_every_form_of_a_layout_is_planned_explained_and_rendered(plan, capsys, layout):
    assert plan("--out", "plan.json", layout=layout) == 0
    document = yaml.safe_load(Path("deployment.yml").read_text())
    jsonschema.validate(document, schema("deployment"))
    assert main(["explain", "plan.json", "--json"]) == 0
    assert main(["render", "plan.json", "--out", "made"]) == 0
    units = sorted(Path("made/etc/systemd/system").glob("*.service"))
    replicas = json.loads(Path("plan.json").read_text())["replicas"]
    assert len(units) == len(replicas)
    for unit, replica in zip(units, replicas, strict=True):
        text = unit.read_text()
        assert f"TP{len(replica['gpus'])} on " in text
        assert text.count("DeviceAllow=/dev/dri/") == len(replica["gpus"])


@pytest.mark.parametrize(
    ("layout", "code", "says"),
    [
        ("atuo", "DOC-TYPE", "expected a mapping or auto, found 'atuo'"),
        ({"tensor_parallel_size": "four"}, "DOC-TYPE", "layout.tensor_parallel_size: expected a"),
        ({"replica": 2}, "DOC-UNKNOWN", "layout.replica is not known"),
        ({"sizes": [4, "two"]}, "DOC-TYPE", "layout.sizes[1]: expected a whole number"),
        ({"sizes": []}, "DEPLOY-VALUE", "at least one replica"),
        ({"sizes": [0, 4]}, "DEPLOY-VALUE", "is 0, expected a whole number of at least 1"),
        ({"sizes": [40, 40]}, "DEPLOY-VALUE", "at most 64"),
        ({"replicas": 0}, "DEPLOY-VALUE", "is 0"),
        ({"replicas": 65}, "DEPLOY-VALUE", "at most 64"),
        ({"spare": -1}, "DEPLOY-VALUE", "from 0 to 63"),
        ({"concurrency": 0}, "DEPLOY-VALUE", "at least 1"),
        ({"spare": 8}, "LAYOUT-NONE", "8 of 8 are usable and 8 of them stay free"),
        ({"sizes": [8, 4], "expert_parallel": True}, "PLACE-TOO-FEW-GPUS", "needs 12"),
        ({"tensor_parallel_size": 3, "replicas": "auto"}, "ENGINE-TP-HEADS", "64 attention heads"),
    ],
)
def test_a_layout_that_cannot_be_is_one_finding(plan, capsys, layout, code, says):
    assert plan("--json", layout=layout) == 1
    captured = capsys.readouterr()
    (finding,) = json.loads(captured.err)["findings"]
    assert finding["code"] == code
    assert says in finding["message"]
    assert captured.out == ""


def small(**changes):
    """Write the deployment of two engines of two GPUs; return its file's name."""
    asked = to_document(demo_deployment()) | {
        "name": "small",
        "base_port": 8100,
        "layout": {"tensor_parallel_size": 2, "replicas": 2, "expert_parallel": True},
        "limits": {"max_model_len": 8192},
        **changes,
    }
    Path("small.yml").write_text(yaml.safe_dump(asked))
    return "small.yml"


def test_two_deployments_of_a_host_are_planned_together(plan, capsys):
    half = {"tensor_parallel_size": 4, "expert_parallel": True}
    assert plan("--with", small(), "--out", "plans", layout=half) == 0
    out = capsys.readouterr().out
    assert out.count("DP1/TP4/EP4") == out.count("DP2/TP2/EP2") == 1
    for name, count in (("qwen3-235b", 1), ("small", 2)):
        document = json.loads(Path(f"plans/{name}/plan.json").read_text())
        jsonschema.validate(document, schema("plan"))
        assert len(document["replicas"]) == count
    keep = ("--keep", "plans/small/plan.json", "--keep", "plans/qwen3-235b/plan.json")
    assert plan("--with", small(), *keep, "--json", layout=half) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "apiary.plans/v1"
    again = json.loads(Path("plans/small/plan.json").read_text())
    assert document["plans"][1]["replicas"] == again["replicas"]


def test_a_file_may_list_the_deployments(plan, capsys):
    half = {"tensor_parallel_size": 4, "expert_parallel": True}
    assert plan(layout=half) == 0
    listed = [yaml.safe_load(Path(name).read_text()) for name in ("deployment.yml", small())]
    Path("both.yml").write_text(yaml.safe_dump({"apiary_deployments": listed}))
    assert main(["plan", "both.yml", "host.json"]) == 0
    assert "apiary-small-1.service port 8101" in capsys.readouterr().out
    Path("both.yml").write_text("apiary_deployments: []")
    assert main(["plan", "both.yml", "host.json"]) == 1
    assert "DOC-TYPE" in capsys.readouterr().err


def test_what_they_share_is_refused(plan, capsys):
    assert plan("--with", small(base_port=8001)) == 1
    assert "PLAN-TOO-FEW-GPUS" in capsys.readouterr().err
    half = {"tensor_parallel_size": 4, "expert_parallel": True}
    assert plan("--with", small(base_port=7999), layout=half) == 1
    assert "PLAN-PORT-TAKEN" in capsys.readouterr().err


def test_a_replica_over_hosts_names_them(plan, capsys):
    over_two = {"tensor_parallel_size": 4, "pipeline_parallel_size": 4, "nodes": 2}
    assert plan(layout=over_two) == 1
    assert "PLAN-NODES-UNPLACED" in capsys.readouterr().err
    hosts = ("--nodes", "gpu-000=10.0.0.1,gpu-001=10.0.0.2", "--interface", "ens1")
    assert plan(*hosts, "--out", "plan.json", layout=over_two) == 0
    assert "DP1/TP4/PP4 over 2 hosts" in capsys.readouterr().out
    document = json.loads(Path("plan.json").read_text())
    jsonschema.validate(document, schema("plan"))
    assert document["node"]["rank"] == 1
    assert main(["explain", "plan.json"]) == 0
    out = capsys.readouterr().out
    assert "rank 1 of gpu-000 gpu-001" in out
    assert "--headless" in out
    assert main(["explain", "plan.json", "--against", "0.11.0"]) == 1
    assert main(["explain", "plan.json", "--against", "0.26.0"]) == 0
    assert plan("--nodes", "gpu-000=10.0.0.1", layout=over_two) == 2
