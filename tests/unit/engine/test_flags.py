# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the versions accept, and the tool that makes those facts from a flag matrix."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import flags as engine
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.shared import SHARED

TOOL = Path(__file__).parents[3] / "tools/vllm_matrix.py"
MATRIX = SHARED / "data/vllm/matrix.json"


def load_tool():
    spec = importlib.util.spec_from_file_location("vllm_matrix", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("0.33.0", "0.33.0"),
        ("v0.14.1", "0.14.1"),
        ("0.11.2", "0.11.2.post2"),  # a post-release fixes packaging, not the interface
        ("0.11.2.post2", "0.11.2.post2"),
        ("0.14.1+rocm700", "0.14.1"),
        ("0.24", "0.24.0"),
    ],
)
def test_a_known_release_is_resolved(asked, version):
    resolved = engine.resolve_version(asked)
    assert (resolved.version, resolved.findings) == (version, ())


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("0.34.0", "0.33.0"),
        ("0.14.0", "0.13.0"),
        ("0.33.0rc1", "0.32.0"),
        ("0.33.1.dev7+gabc", "0.33.0"),
        ("0.1.0", "none"),
        ("latest", "none"),
        ("", "none"),
    ],
)
def test_an_unknown_version_is_refused_with_the_nearest_below(asked, nearest):
    with pytest.raises(ApiaryError) as refusal:
        engine.resolve_version(asked, subject="engine.version of qwen")
    (finding,) = refusal.value.findings
    assert finding.code == "ENGINE-UNKNOWN-VERSION"
    assert finding.subject == "engine.version of qwen"
    assert "0.9.2 to 0.33.0" in finding.message
    assert f"the nearest below is {nearest}" in finding.message
    accepts = nearest if nearest != "none" else "0.33.0"
    assert f"engine.treat_as: {accepts} " in finding.remedy


def test_treat_as_takes_another_versions_facts_and_says_so():
    resolved = engine.resolve_version("0.35.0", "0.33.0")
    assert (resolved.asked, resolved.version) == ("0.35.0", "0.33.0")
    (finding,) = resolved.findings
    assert (finding.code, finding.severity) == ("ENGINE-TREATED-AS", "warning")


def test_treat_as_the_same_version_says_nothing():
    assert engine.resolve_version("0.33.0", "0.33.0").findings == ()


def test_treat_as_must_be_known():
    with pytest.raises(ApiaryError, match=r"engine\.treat_as is 9\.9"):
        engine.resolve_version("0.35.0", "9.9")


def test_versions_are_in_order():
    assert engine.versions()[0] == "0.9.2"
    assert engine.newest() == engine.versions()[-1] == "0.33.0"


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("--tensor-parallel-size", ("0.9.2", "0.33.0")),
        ("-tp", ("0.9.2", "0.33.0")),
        ("--attention-backend", ("0.13.0", "0.33.0")),
        ("--shutdown-timeout", ("0.18.1", "0.33.0")),
        ("--num-scheduler-steps", ("0.9.2", "0.9.2")),
        ("--swap-space", ("0.9.2", "0.17.1")),
        ("VLLM_USE_V1", ("0.9.2", "0.11.0")),
        ("VLLM_ENGINE_READY_TIMEOUT_S", ("0.14.1", "0.33.0")),
        ("--no-such-flag", (None, None)),
    ],
)
def test_first_and_last_version(name, versions):
    assert (engine.first_seen(name), engine.last_seen(name)) == versions


def test_a_flag_may_come_back():
    there = {
        version
        for version in engine.versions()
        if "--disable-log-requests" in engine.flags(version)
    }
    assert {"0.16.0", "0.33.0"} <= there
    assert "0.17.1" not in there
    assert "0.32.0" not in there


def test_every_spelling_leads_to_one_action():
    flags = engine.flags("0.33.0")
    prefix = flags["--enable-prefix-caching"]
    assert flags["--disable-prefix-caching"] is prefix
    assert flags["--no-enable-prefix-caching"] is prefix
    assert prefix.negative == ("--disable-prefix-caching", "--no-enable-prefix-caching")
    assert prefix.hidden == ("--no-enable-prefix-caching",)
    assert not prefix.takes_value
    assert flags["-tp"].name == "--tensor-parallel-size"
    assert flags["-tp"].takes_value
    assert flags["--gpu-memory-utilization"].name == "--gpu-memory-utilization"


def test_enforced_choices_follow_the_version():
    name = "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION"
    assert engine.env_vars("0.9.2")[name].choices is None
    assert "INT3" not in engine.env_vars("0.24.0")[name].choices
    assert "INT3" in engine.env_vars("0.33.0")[name].choices
    assert "ROCM_AITER_FA" in engine.env_vars("0.14.1")["VLLM_ATTENTION_BACKEND"].choices


def test_config_keys_and_names_follow_the_version():
    assert "max_capture_size" in engine.config_keys("0.11.0", "CompilationConfig") or (
        "full_cuda_graph" in engine.config_keys("0.11.0", "CompilationConfig")
    )
    assert "full_cuda_graph" not in engine.config_keys("0.13.0", "CompilationConfig")
    assert engine.config_keys("0.33.0", "NoSuchConfig") == {}
    assert "ROCM_AITER_FA" in engine.enum_names("0.13.0", "AttentionBackendEnum")
    assert "fp8_per_channel" in engine.literals("0.24.0", "QuantizationMethods")
    assert "fp8_per_channel" not in engine.literals("0.22.1", "QuantizationMethods")


@pytest.mark.skipif(not MATRIX.is_file(), reason="the flag matrix is not here")
def test_the_facts_are_what_the_tool_makes_of_the_matrix():
    for name, text in load_tool().convert(json.loads(MATRIX.read_text())).items():
        assert (KNOWLEDGE / "vllm" / name).read_text() == text


@pytest.mark.skipif(not MATRIX.is_file(), reason="the flag matrix is not here")
def test_nothing_of_the_matrix_is_lost_on_the_way():
    matrix = json.loads(MATRIX.read_text())
    order = matrix["versions"]

    def seen(entry):
        for part in entry:
            first, _, last = part.partition("..")
            yield from order[order.index(first) : order.index(last or first) + 1]

    for version in order:
        flags = {name for name, entry in matrix["flags"].items() if version in seen(entry["seen"])}
        env = {name for name, entry in matrix["env"].items() if version in seen(entry["seen"])}
        assert set(engine.flags(version)) == flags
        assert set(engine.env_vars(version)) == env


SMALL = {
    "schema": "vllm-flag-matrix/1",
    "versions": ["1.0", "1.1", "1.2"],
    "flags": {
        "--size": {
            "seen": ["1.0..1.2"],
            "history": [
                {"from": "1.0", "dest": "size", "kind": "Store", "choices": [1, 2]},
                {"from": "1.1", "dropped": ["choices"]},
            ],
        },
        "--old": {
            "seen": ["1.0", "1.2"],
            "history": [{"from": "1.0", "dest": "old", "kind": "StoreTrue", "nargs": 0}],
        },
        "--fast": {
            "seen": ["1.1..1.2"],
            "history": [{"from": "1.1", "dest": "fast", "kind": "BooleanOptional"}],
        },
        "--no-fast": {
            "seen": ["1.1..1.2"],
            "history": [
                {"from": "1.1", "dest": "fast", "kind": "BooleanOptional"},
                {"from": "1.2", "hidden": True},
            ],
        },
    },
    "env": {
        "VLLM_MODE": {
            "seen": ["1.0..1.1"],
            "history": [
                {"from": "1.0", "expr": "os.getenv('VLLM_MODE', 'a')", "default": "a"},
                {
                    "from": "1.1",
                    "expr": "env_with_choices('VLLM_MODE', 'a', ['a', 'b'], case_sensitive=False)",
                    "type": "Optional[Literal['a', 'b']]",
                },
            ],
        }
    },
    "config_keys": {"XConfig": {"keys": {"k": {"seen": ["1.1"], "type": [["1.1", "a.b.Kind"]]}}}},
    "enums": {"Backend": {"ONE": ["1.0..1.2"]}},
    "literals": {"Dtype": {"fp8": ["1.2"]}},
}


def test_the_tool_writes_histories():
    files = {name: yaml.safe_load(text) for name, text in load_tool().convert(SMALL).items()}
    assert all(
        file["source"] and file["versions"] == ["1.0", "1.1", "1.2"] for file in files.values()
    )
    flags = files["flags.yml"]["flags"]
    assert flags["size"] == [
        {"from": "1.0", "names": ["--size"], "kind": "Store", "choices": [1, 2]},
        {"from": "1.1", "names": ["--size"], "kind": "Store"},
    ]
    assert [state.get("absent", False) for state in flags["old"]] == [False, True, False]
    assert flags["fast"][-1] == {
        "from": "1.2",
        "names": ["--fast"],
        "kind": "BooleanOptional",
        "negative": ["--no-fast"],
        "hidden": ["--no-fast"],
    }
    assert files["env.yml"]["env"]["VLLM_MODE"] == [
        {"from": "1.0", "default": "a"},
        {"from": "1.1", "type": "str", "default": "a", "choices": ["a", "b"], "ignore_case": True},
        {"from": "1.2", "absent": True},
    ]
    assert files["config_keys.yml"]["config_keys"]["XConfig"]["k"] == [
        {"from": "1.1", "type": "Kind"},
        {"from": "1.2", "absent": True},
    ]
    assert files["literals.yml"]["literals"]["Dtype"]["fp8"] == [{"from": "1.2"}]


@pytest.mark.parametrize("text", ["{", '{"schema": "other/1"}', None])
def test_the_tool_refuses_what_is_no_matrix(tmp_path, capsys, text):
    path = tmp_path / "matrix.json"
    if text is not None:
        path.write_text(text)
    assert load_tool().main([str(path), str(tmp_path / "out")]) == 1
    assert "matrix.json" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_tool_writes_its_files(tmp_path):
    path = tmp_path / "matrix.json"
    path.write_text(json.dumps(SMALL))
    assert load_tool().main([str(path), str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 5
