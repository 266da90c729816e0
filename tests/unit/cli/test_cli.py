# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

from apiary.app.cli import main
from apiary.app.output import report
from apiary.app.schemas import NAMES, schema
from support.demo import VARIABLES, demo_deployment, demo_plan
from support.programs import run_program
from support.topology.topologies import host, mi325x


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A directory with the demo's documents, as the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("host.json").write_text(dumps(mi325x()))
    Path("seven.json").write_text(dumps(mi325x(missing=[3])))
    Path("none.json").write_text(dumps(host([], [])))
    Path("plan.json").write_text(dumps(demo_plan()))
    Path("deployment.yml").write_text(yaml.safe_dump(to_document(demo_deployment())))
    return tmp_path


def asked(path, **changes):
    """Write the demo's deployment with some parts changed."""
    document = to_document(demo_deployment())
    for part, fields in changes.items():
        document[part] |= fields
    Path(path).write_text(yaml.safe_dump(document))


def test_no_color_is_heard(monkeypatch, capsys):
    """Before FORCE_COLOR, which is heard where no terminal is."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    found = [
        Finding.from_fields(
            code="A-B",
            severity="error",
            subject="h",
            message="is broken",
            remedy="mend it",
            source=None,
        )
    ]
    report(found, as_json=False)
    assert "\x1b[31m" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    report(found, as_json=False)
    assert "\x1b" not in capsys.readouterr().err


def findings(capsys):
    """The findings that a command printed as JSON on stderr."""
    return json.loads(capsys.readouterr().err)["findings"]


def test_topology_as_json_is_the_document(files, capsys):
    assert main(["topology", "host.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(dumps(mi325x()))


def test_topology_draws_the_plan(files, capsys):
    assert main(["topology", "host.json", "--plan", "plan.json", "--svg", "out/host.svg"]) == 0
    picture = Path("out/host.svg").read_text()
    assert picture.startswith("<svg")
    assert "replica 1" in picture
    assert "05:00.0" in capsys.readouterr().out


def test_several_captures_are_one_list(files, capsys):
    assert main(["topology", "host.json", "seven.json", "--json"]) == 0
    assert [len(one["gpus"]) for one in json.loads(capsys.readouterr().out)] == [8, 7]


def test_model_tells_what_it_takes_up(files, capsys):
    config = {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 151936,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 3072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "max_position_embeddings": 40960,
    }  # fmt: skip
    Path("config.json").write_text(json.dumps(config))
    assert main(["model", "config.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] is None
    assert main(["model", "config.json", "--tp", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("model"))
    # 28 layers x 4 KV heads a GPU x 128 x keys and values x 2 bytes
    assert found["memory"]["kv_bytes_per_token_per_gpu"] == 28 * 4 * 128 * 2 * 2
    assert main(["model", "config.json", "--tp", "2", "--gpu", "H100"]) == 2


def test_place(files, capsys):
    assert main(["place", "host.json", "--tp", "4", "--replicas", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [share["memory_nodes"] for share in document["replicas"]] == [[0], [1]]
    jsonschema.validate(document, schema("placement"))


def test_plan_writes_and_prints_the_plan(files, capsys):
    assert main(["plan", "deployment.yml", "host.json", "--out", "made/plan.json"]) == 0
    assert json.loads(Path("made/plan.json").read_text()) == json.loads(dumps(demo_plan()))
    assert "DP2/TP4/EP4" in capsys.readouterr().out


def test_plan_reads_the_deployment_of_an_inventory(files, capsys):
    assert main(["plan", str(VARIABLES), "host.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["host"] == "gpu-001"


def test_diff(files, capsys):
    asked("other.yml", layout={"replicas": 1})
    main(["plan", "other.yml", "host.json", "--out", "other.json"])
    capsys.readouterr()
    assert main(["diff", "plan.json", "plan.json"]) == 0
    assert capsys.readouterr().out == "the plans are the same\n"
    assert main(["diff", "plan.json", "other.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"]


def test_render_writes_what_the_host_would_have(files, capsys):
    assert main(["render", "plan.json", "--out", "rendered", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["files"]
    assert "rendered/etc/systemd/system/apiary-qwen3-235b-0.service" in written
    assert os.access("rendered/usr/libexec/apiary/launch", os.X_OK)


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_a_schema(name, capsys):
    assert main(["schema", name]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("name", "document"),
    [("topology", mi325x()), ("plan", demo_plan()), ("deployment", demo_deployment())],
)
def test_documents_match_their_schemas(name, document):
    jsonschema.validate(to_document(document), schema(name))


def test_a_schema_refuses_what_nobody_reads():
    document = {**to_document(mi325x()), "surprise": 1}
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(document, schema("topology"))


@pytest.mark.parametrize(
    ("changes", "evidence", "config", "code"),
    [
        pytest.param({}, "none.json", None, "PLACE-NO-GPUS", id="no-gpus"),
        pytest.param(
            {"layout": {"tensor_parallel_size": 8, "replicas": 1}},
            "seven.json",
            None,
            "PLACE-TOO-FEW-GPUS",
            id="seven-for-tp8",
        ),
        pytest.param(
            {"layout": {"tensor_parallel_size": 3, "replicas": 2}},
            "host.json",
            None,
            "ENGINE-TP-HEADS",
            id="tp-divides-no-heads",
        ),
        pytest.param({}, "host.json", "missing.json", "FILE-UNREADABLE", id="no-config"),
        pytest.param({}, "host.json", "deployment.yml", "MODEL-NOT-JSON", id="config-not-json"),
        pytest.param(
            {
                "layout": {"tensor_parallel_size": 1, "replicas": 2, "expert_parallel": True},
                "limits": {"gpu_memory_utilization": 0.8},
            },
            "host.json",
            None,
            "FIT-NO-ROOM",
            id="does-not-fit",
        ),
        pytest.param(
            {"engine": {"version": "0.1.0"}},
            "host.json",
            None,
            "ENGINE-UNKNOWN-VERSION",
            id="unknown-version",
        ),
        pytest.param(
            {"model": {"name": "nobody/knows"}}, "host.json", None, "MODEL-UNKNOWN", id="no-model"
        ),
        pytest.param({}, "deployment.yml", None, "TOPO-UNRECOGNISED", id="no-evidence"),
    ],
)
def test_bad_input_is_one_finding_and_nothing_written(
    files, capsys, changes, evidence, config, code
):
    asked("deployment.yml", **changes)
    command = ["plan", "deployment.yml", evidence, "--out", "made.json", "--json"]
    if config:
        command += ["--model", config]
    assert main(command) == 1
    (finding,) = findings(capsys)
    assert finding["code"] == code
    assert finding["severity"] == "error"
    assert finding["remedy"]
    assert not Path("made.json").exists()


def test_a_finding_for_people_names_its_remedy(files, capsys):
    assert main(["place", "seven.json", "--tp", "8"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: PLACE-TOO-FEW-GPUS: gpu-001: ")
    assert "\n  remedy: Possible here: TP4 × 1 leaves 3 free" in err


@pytest.mark.parametrize("command", [["place", "host.json"], ["nonsense"], ["schema", "x"]])
def test_wrong_usage_is_exit_2(files, capsys, command):
    assert main(command) == 2
    assert "Usage" in capsys.readouterr().err


def test_an_unwritable_place_leaves_nothing(files, capsys):
    Path("file").write_text("")
    assert main(["render", "plan.json", "--out", "file/x", "--json"]) == 1
    assert findings(capsys)[0]["code"] == "FILE-UNWRITABLE"


def test_probe_says_which_host_failed_and_still_gives_the_others(files, capsys):
    # Port 1 of loopback answers nobody.
    assert main(["probe", "127.0.0.1", "localhost", "--port", "1", "--timeout", "5", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["files"] == {}
    found = json.loads(captured.err)["findings"]
    assert [finding["subject"] for finding in found] == ["127.0.0.1", "localhost"]
    assert {finding["code"] for finding in found} == {"PROBE-UNREACHABLE"}


def test_probe_of_this_machine(files, capsys):
    assert main(["probe", "--out", "seen", "--json"]) == 0
    ((_host, path),) = json.loads(capsys.readouterr().out)["files"].items()
    jsonschema.validate(json.loads(Path(path).read_text()), schema("evidence"))


def test_the_module_runs_as_the_command(files):
    done = subprocess.run(
        [sys.executable, "-m", "apiary", "--version"], capture_output=True, text=True, check=True
    )
    assert "apiary, version" in done.stdout


def test_the_version_needs_nothing_of_the_command_and_is_the_same(capsys):
    program = (
        "import sys\nfrom apiary.__main__ import main\nmain()\nassert 'click' not in sys.modules"
    )
    argv = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == done.stdout


@pytest.mark.parametrize("words", [["schema", "plan"], ["finding", "FILE-SYNTAX"], ["finding"]])
def test_a_full_disk_is_one_finding(words):
    done = run_program("apiary", words, cwd="/", environment=os.environ, stdout="/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("error: FILE-UNWRITABLE: the output")
    assert "Traceback" not in done.stderr


def test_a_file_that_nests_without_end_is_one_finding(files, capsys):
    Path("deep.json").write_text("[" * 100_000)
    assert main(["report", "deep.json"]) == 1
    assert capsys.readouterr().err.startswith("error: FILE-SYNTAX:")
