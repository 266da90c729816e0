# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary explain`: the elements, one of them, another version, and somebody's own command."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import MixedLayout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import newest
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of

from apiary.app.cli import main
from support.demo import demo_deployment, demo_plan
from support.engines import DEEPSEEK, KIMI, LLAMA, QWEN, QWEN_VL
from support.planned import build_plan
from support.topology.topologies import mi325x

COMMANDS = Path(__file__).parents[2] / "golden/commands"
PUBLISHED = {
    "qwen3-235b-fp8-tp8-ep8": QWEN,
    "qwen3-235b-fp8-tp4-ep4": QWEN,
    "deepseek-v3.2": DEEPSEEK,
    "llama-3.1-405b": LLAMA,
    "qwen3-vl-235b": QWEN_VL,
    "kimi-k2.5": KIMI,
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The demo's plan and deployment in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(dumps(demo_plan()))
    Path("deployment.yml").write_text(yaml.safe_dump(to_document(demo_deployment())))


def asked(name, version, **fields):
    """Write a deployment of a model and version."""
    document = to_document(demo_deployment()) | fields
    document["model"] |= {"name": name}
    document["engine"] |= {"version": version}
    Path("asked.yml").write_text(yaml.safe_dump(document))
    return "asked.yml"


def findings(capsys):
    """The findings that a command printed as JSON on stderr."""
    return json.loads(capsys.readouterr().err)["findings"]


def test_every_element_has_a_reason_and_a_source(files, capsys):
    assert main(["explain", "plan.json", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["elements"]
    assert all(row["reason"] and row["source"] and row["rule"] for row in rows)
    named = {row["element"].split()[0].partition("=")[0] for row in rows}
    replica = demo_plan().replicas[0]
    assert set(replica.env) <= named
    assert {word for word in replica.argv if word.startswith("--")} <= named


def test_the_table_is_in_groups_with_what_they_are_about(files, capsys):
    assert main(["explain", "plan.json"]) == 0
    out = capsys.readouterr().out
    for part in (
        "How the model is spread over GPUs",
        "--port {8000|8001}",
        "VLLM-ATTENTION-AITER-FA [",
        "(attention backend) ROCM_AITER_FA",
        "[1] ",
    ):
        assert part in out


def test_brief_leaves_the_command_out(files, capsys):
    assert main(["explain", "plan.json", "--brief"]) == 0
    out = capsys.readouterr().out
    assert "runner-up" in out
    assert "VLLM-AITER" not in out


def test_one_element_in_full(files, capsys):
    assert main(["explain", "plan.json", "--why", "--attention-backend", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["element"] == "--attention-backend"
    assert found["texts"] == ["--attention-backend ROCM_AITER_FA"] * 2
    assert found["claims"]
    assert main(["explain", "plan.json", "--why", "tp"]) == 0
    assert "rule:     VLLM-TP" in capsys.readouterr().out


def test_an_element_that_is_not_there(files, capsys):
    assert main(["explain", "plan.json", "--why", "--tensor-paralel-size", "--json"]) == 1
    (finding,) = findings(capsys)
    assert finding["code"] == "EXPLAIN-NO-ELEMENT"
    assert "--tensor-parallel-size" in finding["remedy"]


def changes(capsys):
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "apiary.migration/v1"
    return document, {
        (one["kind"], one["element"]) for engine in document["engines"] for one in engine["changes"]
    }


def test_another_version_is_a_list_of_changes(files, capsys):
    assert main(["explain", "plan.json", "--against", "0.14.1", "--json"]) == 0
    document, found = changes(capsys)
    assert (document["from"], document["to"], document["refused"]) == ("0.33.0", "0.14.1", False)
    assert ("removed", "--shutdown-timeout") in found
    assert ("removed", "--safetensors-load-strategy") in found
    assert main(["explain", "plan.json", "--against", "0.12.0"]) == 0
    out = capsys.readouterr().out
    assert "vLLM 0.33.0 to 0.12.0" in out
    assert "--attention-backend" in out
    assert "--port" not in out


def test_the_same_version_changes_nothing(files, capsys):
    assert main(["explain", "plan.json", "--against", "0.33.0"]) == 0
    assert "nothing changes" in capsys.readouterr().out


def test_what_the_other_version_refuses_comes_first_and_is_exit_1(files, capsys):
    name = asked(KIMI, "0.33.0", layout={"tensor_parallel_size": 8})
    assert main(["explain", name, "--against", "0.14.1", "--json"]) == 1
    document, _found = changes(capsys)
    assert document["refused"]
    first = document["engines"][0]["changes"][0]
    assert first["kind"] == "refused"
    assert "0.14.1" in first["reason"]


def test_unequal_engines_have_a_list_each(files, capsys):
    deployment = dataclasses.replace(demo_deployment(), layout=MixedLayout((4, 2, 2), True))
    plan = build_plan(deployment, mi325x(), architecture_of(deployment, "demo"))
    Path("mixed.json").write_text(dumps(plan))
    assert main(["explain", "mixed.json", "--against", "0.14.1", "--json"]) == 0
    document, _found = changes(capsys)
    sizes = [(one["tensor_parallel_size"], one["replicas"]) for one in document["engines"]]
    assert sizes == [(4, [0]), (2, [1, 2])]


def test_what_the_operator_set_is_carried_to_the_other_version(files, capsys):
    engine = to_document(demo_deployment().engine) | {"args": {"async-scheduling": True}}
    name = asked(QWEN, "0.33.0", engine=engine)
    assert main(["explain", name, "--against", "0.9.2", "--json"]) == 1
    _document, found = changes(capsys)
    assert ("refused", "--async-scheduling") in found


def review(capsys, *arguments):
    code = main(["explain", *arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "apiary.review/v1"
    return code, document


@pytest.mark.parametrize("version", ["0.14.1", newest()])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_commands(files, capsys, golden, monkeypatch, name, version):
    """What is said of each, by line: the published recipes as they would be typed."""
    Path(f"{name}.sh").write_text((COMMANDS / f"{name}.sh").read_text())
    deployment = asked(PUBLISHED[name], version, layout="auto")
    code, document = review(capsys, deployment, "--recipe", f"{name}.sh")
    said = [
        f"{one['subject'].removeprefix(f'{name}.sh:'):>2} {one['severity']:7} {one['code']}"
        for one in document["findings"]
    ]
    golden(f"commands/{name}-{version}.txt", "\n".join(said) + "\n")
    assert code == int(any(" error " in line for line in said))


@pytest.mark.parametrize(
    ("name", "version", "codes"),
    [
        ("qwen3-235b-fp8-tp8-ep8", "0.14.1", {"ENGINE-UNKNOWN-KEY"}),
        ("deepseek-v3.2", "0.14.1", {"ENGINE-UNKNOWN-FLAG"}),
        ("llama-3.1-405b", "0.33.0", {"ENGINE-UNKNOWN-FLAG"}),
        ("kimi-k2.5", "0.14.1", {"ENGINE-MODEL-TOO-NEW"}),
        ("kimi-k2.5", "0.33.0", {"ENGINE-BLOCK-SIZE"}),
    ],
)
def test_what_is_wrong_with_the_published_commands(files, capsys, name, version, codes):
    deployment = asked(PUBLISHED[name], version)
    code, document = review(capsys, deployment, "--recipe", str(COMMANDS / f"{name}.sh"))
    errors = {one["code"] for one in document["findings"] if one["severity"] == "error"}
    assert codes <= errors
    assert code == 1


def test_a_command_that_does_not_fit_says_so(files, capsys):
    Path("start.sh").write_text(f"vllm serve {LLAMA} -tp 2 --max-model-len 32768\n")
    _code, document = review(capsys, asked(LLAMA, "0.33.0"), "--recipe", "start.sh")
    fit = [one for one in document["findings"] if one["code"] == "FIT-NO-ROOM"]
    assert [one["subject"] for one in fit] == ["start.sh:1"]
    Path("start.sh").write_text(f"vllm serve {LLAMA} -tp 4 -q fp8 --max-model-len 32768\n")
    _code, document = review(capsys, asked(LLAMA, "0.33.0"), "--recipe", "start.sh")
    assert "FIT-NO-ROOM" not in {one["code"] for one in document["findings"]}


def test_a_command_for_another_model_is_told(files, capsys):
    Path("start.sh").write_text("vllm serve /models/other -tp 4 --enable-expert-parallel\n")
    _code, document = review(capsys, "plan.json", "--recipe", "start.sh")
    assert document["findings"][0]["code"] == "EXPLAIN-OTHER-MODEL"
    path = demo_deployment().model.path
    Path("start.sh").write_text(f"vllm serve {path}/ -tp 4 --enable-expert-parallel\n")
    _code, document = review(capsys, "plan.json", "--recipe", "start.sh")
    assert "EXPLAIN-OTHER-MODEL" not in {one["code"] for one in document["findings"]}


def test_the_table_of_a_review_ends_in_the_command_to_run(files, capsys):
    Path("start.sh").write_text(
        "vllm serve Qwen3-235B-A22B-Instruct-2507-FP8 \\\n -tp 4 --no-such 1\n"
    )
    assert main(["explain", "plan.json", "--recipe", "start.sh"]) == 1
    out = capsys.readouterr().out
    assert "│ 2    │ error   │ ENGINE-UNKNOWN-FLAG " in out
    assert "attention backend of this command: ROCM_ATTN" in out
    assert "vllm serve /srv/models/" in out
    assert "  --tensor-parallel-size 4" in out


def test_a_layout_that_apiary_would_not_run_gets_no_recipe(files, capsys):
    Path("start.sh").write_text("vllm serve Qwen3-235B-A22B-Instruct-2507-FP8 -tp 3\n")
    assert main(["explain", "plan.json", "--recipe", "start.sh"]) == 1
    assert "Apiary would not run this layout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan.json", "--recipe", "none.sh"], "FILE-UNREADABLE"),
        (["plan.json", "--recipe", "."], "FILE-UNREADABLE"),
        (["plan.json", "--recipe", "plan.json"], "ENGINE-RECIPE-EMPTY"),
        (["plan.json", "--against", "latest"], "ENGINE-UNKNOWN-VERSION"),
        (["plan.json", "--against", "0.1.0"], "ENGINE-UNKNOWN-VERSION"),
        (["deployment.yml"], "EXPLAIN-NEEDS-PLAN"),
        (["deployment.yml", "--why", "tp"], "EXPLAIN-NEEDS-PLAN"),
        (["none.json"], "FILE-UNREADABLE"),
        (["open.yml", "--against", "0.14.1"], "DEPLOY-LAYOUT-OPEN"),
    ],
)
def test_bad_input_is_one_finding(files, capsys, arguments, code):
    document = to_document(demo_deployment()) | {"layout": "auto"}
    Path("open.yml").write_text(yaml.safe_dump(document))
    assert main(["explain", *arguments, "--json"]) == 1
    captured = capsys.readouterr()
    (finding,) = json.loads(captured.err)["findings"]
    assert finding["code"] == code
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan.json", "--why", "tp", "--against", "0.14.1"],
        ["deployment.yml", "--against", "0.14.1", "--gpu", "H100"],
    ],
)
def test_wrong_usage_is_exit_2(files, arguments):
    assert main(["explain", *arguments]) == 2
