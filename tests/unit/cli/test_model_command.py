# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary model` as an operator runs it."""

import json

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from apiary.app.cli import main
from apiary.app.schemas import schema

FP8 = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
CONFIG = knowledge(f"models/{FP8.replace('/', '--')}.yml")["config"]


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def asked(capsys, *arguments):
    """The document that a run prints, valid by its schema, and the findings on stderr."""
    code = main(["model", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    jsonschema.validate(document, schema("model"))
    findings = json.loads(err)["findings"] if err else []
    return code, document, [finding["code"] for finding in findings]


def test_the_memory_of_a_layout_counts_the_host(capsys, checkpoint):
    code, document, codes = asked(
        capsys, checkpoint / "config.json", "--tp", 4, "--ep", "--replicas", 2,
        "--kv-cache-dtype", "fp8", "--sequence-length", 5740,
    )  # fmt: skip
    memory = document["memory"]
    assert code == 0
    assert codes == ["FIT-RESERVE-ASSUMED"]
    assert memory["kv_bytes_per_token_per_gpu"] == 24_064
    assert memory["kv_tokens_per_engine"] == pytest.approx(7.54e6, rel=1e-3)
    assert memory["max_sequences"] == pytest.approx(1313, abs=1)
    assert memory["max_sequences_per_host"] == 2 * memory["max_sequences"]
    assert {item["kind"] for item in memory["modules"]} >= {"experts", "kv", "router"}
    total = sum(item["bytes_per_gpu"] for item in memory["modules"])
    assert total == memory["weights_bytes_per_gpu"]


def test_a_directory_and_a_known_name_lead_to_the_same_model(capsys, checkpoint):
    _code, by_directory, _codes = asked(capsys, checkpoint)
    _code, by_name, _codes = asked(capsys, FP8)
    assert by_directory == by_name


def test_an_index_beside_the_config_is_read(capsys, checkpoint):
    index = {"metadata": {"total_size": 300_000_000_000}, "weight_map": {"lm_head.weight": "a"}}
    file = checkpoint / "model.safetensors.index.json"
    file.write_text(json.dumps(index))
    _code, document, codes = asked(capsys, checkpoint, "--tp", 8)
    assert document["memory"]["weights_source"] == "index"
    assert "FIT-INDEX-DIFFERS" in codes
    file.rename(checkpoint / "other.json")
    _code, plain, _codes = asked(capsys, checkpoint, "--tp", 8)
    assert plain["memory"]["weights_source"] == "formula"
    _code, named, _codes = asked(
        capsys, checkpoint, "--tp", 8, "--index", checkpoint / "other.json"
    )
    assert named["memory"] == document["memory"]


def test_a_quantization_beside_the_config_is_read(capsys, checkpoint):
    plain = {key: value for key, value in CONFIG.items() if key != "quantization_config"}
    (checkpoint / "config.json").write_text(json.dumps(plain))
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps(beside))
    _code, document, _codes = asked(capsys, checkpoint)
    assert document["quantization"] == "modelopt"
    assert document["details"]["quantization"]["bits"] == 4


def test_quantizing_while_loading_and_a_measured_reserve(capsys):
    name = "meta-llama/Llama-3.1-405B-Instruct"
    _code, document, codes = asked(
        capsys, name, "--tp", 8, "--quantization", "fp8", "--reserve", 4.5
    )
    assert document["memory"]["weights_bytes_per_gpu"] / 2**30 == pytest.approx(47.74, abs=0.01)
    assert document["memory"]["reserve_bytes_per_gpu"] == 4.5 * 2**30
    assert codes == []


def test_what_does_not_fit_ends_with_a_finding(capsys):
    code, _document, codes = asked(capsys, FP8, "--tp", 1, "--gpu", "MI100")
    assert code == 1
    assert "FIT-NO-ROOM" in codes


@pytest.mark.parametrize("arguments", [["--tp", "0"], ["--tp", "2", "--gpu", "H100"]])
def test_wrong_usage_ends_with_2(capsys, checkpoint, arguments):
    assert main(["model", str(checkpoint), *arguments]) == 2
    assert "Error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nobody/nothing", "FILE-UNREADABLE"),
        ("{checkpoint}/none.json", "FILE-UNREADABLE"),
        ("{checkpoint}/model.safetensors.index.json", "MODEL-NO-TYPE"),
    ],
)
def test_what_is_no_config_is_refused(capsys, checkpoint, name, code):
    (checkpoint / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert main(["model", name.format(checkpoint=checkpoint)]) == 1
    assert code in capsys.readouterr().err


def test_the_tables_show_what_the_model_is(capsys):
    assert main(["model", "moonshotai/Kimi-K2.5", "--tp", "4"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "experts_per_token",
        "262,144",
        "type yarn, factor 64.0, original_context 4,096",
        "compressed-tensors",
        "1,026,879,376,368",
        "140.33 GiB",
        "replicated",
    ):
        assert part in shown
    assert main(["model", "deepseek-ai/DeepSeek-V3.2"]) == 0
    shown = capsys.readouterr().out
    assert "index_topk" in shown
