# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tool that reads a vLLM release and adds it to the facts: on a release made for the test."""

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    KNOWLEDGE,
    knowledge,
)

TOOLS = Path(__file__).parents[3] / "tools"
# A release of a few lines, and what it asks of torch and transformers.
RELEASE = {
    "torch/__init__.py": "class _C:\n    class _cpu: pass\n",
    "transformers/__init__.py": (
        "class AutoConfig:\n"
        "    @classmethod\n"
        "    def register(cls, *args, exist_ok=False): assert exist_ok\n"
        "class AutoTokenizer(AutoConfig): pass\n"
    ),
    "vllm/__init__.py": "import missing_package.part\nfrom transformers import AutoConfig\n"
    "AutoConfig.register('taken', object)\nprint('a log line on stdout')\n",
    "vllm/envs.py": (
        "import os, uuid\n"
        "if True:\n"
        "    VLLM_MODE: str = 'a'\n"
        "environment_variables = {\n"
        "    'VLLM_MODE': lambda: env_with_choices('VLLM_MODE', 'a', ['a', 'b'],"
        " case_sensitive=False),\n"
        "    'VLLM_PATH': lambda: os.path.expanduser('~/x'),\n"
        "    'VLLM_NAME': lambda: uuid.uuid4().hex,\n"
        "    'VLLM_BAD': lambda: int('x'),\n"
        "}\n"
        "def env_with_choices(name, default, choices, case_sensitive=True): return default\n"
    ),
    "vllm/utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "vllm/entrypoints/cli/serve.py": (
        "import argparse, json\n"
        "def optional_type(inner):\n"
        "    def _optional_type(value): return inner(value)\n"
        "    return _optional_type\n"
        "class ServeSubcommand:\n"
        "    def subparser_init(self, subparsers):\n"
        "        parser = subparsers.add_parser('serve')\n"
        "        parser.add_argument('--size', '-s', type=int, choices=[1, 2])\n"
        "        parser.add_argument('--seed', type=optional_type(int), default=0)\n"
        "        parser.add_argument('--x-config', type=json.loads, default={})\n"
        "        parser.add_argument('--old', action='store_true', help='--old is deprecated')\n"
        "        parser.add_argument('--fast', action=argparse.BooleanOptionalAction)\n"
        "        return parser\n"
    ),
    "vllm/config/__init__.py": (
        "import dataclasses, enum\n"
        "from typing import Literal, Optional\n"
        "CacheDType = Literal['auto', 'fp8']\n"
        "class CUDAGraphMode(enum.Enum):\n    NONE = 0\n    FULL = 1\n"
        "@dataclasses.dataclass\n"
        "class CacheConfig:\n"
        "    mode: Optional[CUDAGraphMode] = None\n"
        "    size: int = 1\n"
        "    made: int = dataclasses.field(default=0, init=False)\n"
    ),
    "vllm/platforms/rocm.py": (
        "class RocmPlatform:\n    supported_quantization: list[str] = ['fp8', 'awq']\n"
    ),
    "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {'new': ('file', 'Class')}\n",
    "vllm/reasoning/old.py": "@Manager.register_module(['old', 'older'])\nclass Old: pass\n",
    "vllm/config/speculative.py": (
        "from typing import Literal\nMtp = Literal['mtp', 'x_mtp']\n"
        "SpeculativeMethod = Literal['ngram', Mtp]\n"
    ),
    "vllm/model_executor/models/image.py": (
        "class AForConditionalGeneration:\n    supports_encoder_tp_data = True\n"
        "class B(AForConditionalGeneration): pass\n"
        "class C(B):\n    supports_encoder_tp_data = False\n"
    ),
    "vllm/v1/metrics.py": "NAME = 'vllm:num_requests_running'\n",
    "vllm/loader.py": "log('Starting to load model %s...')\n",
    "vllm/cache.py": "raise E(f'{a} No available memory '\n  f'for the cache blocks {b}')\n",
    "docker/Dockerfile.rocm_base": (
        "ARG BASE_IMAGE=rocm/dev-ubuntu-22.04:7.2.3-complete\n"
        'ARG AITER_BRANCH="v0.1.16" # as of today\nARG AITER_REPO="x"\nARG MORI_BRANCH\n'
    ),
    ".buildkite/test-amd.yaml": (
        "steps:\n"
        '- {label: ":amd: (MI300) V1 Spec Decode %N", agent_pool: mi300_1}\n'
        '- {label: "Samplers Test # 30min (MI355)", agent_pool: mi355_dpx}\n'
        '- {label: "Metadata", agent_pool: mi250_1, no_gpu: true}\n'
        '# - {label: "Gone", agent_pool: mi300_1}\n'
    ),
    "vllm/model_executor/models/registry.py": (
        "_MODELS = {'LlamaForCausalLM': ('llama', 'LlamaForCausalLM')}\n"
        "_OTHERS: dict = {**_MODELS, 'NewForCausalLM': ('new', 'New')}\n_NAMES = {'a': 'b'}\n"
    ),
}


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location("vllm_matrix", TOOLS / "vllm_matrix.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("release")
    for name, text in RELEASE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(scope="module")
def snapshot(tool, sources):
    return tool.read("1.0", sys.executable, sources)


def test_a_release_is_read_without_what_it_prints(snapshot):
    assert (snapshot["schema"], snapshot["version"]) == ("vllm-snapshot/2", "1.0")


def test_flags_are_read_off_the_live_parser(snapshot):
    flags = snapshot["flags"]
    assert flags["--size"] == flags["-s"]
    assert flags["--size"] == {"dest": "size", "kind": "Store", "choices": ["1", "2"]}
    assert flags["--seed"] == {
        "dest": "seed",
        "kind": "Store",
        "type": "int",
        "optional": True,
        "default": 0,
    }
    assert flags["--x-config"] == {"dest": "x_config", "kind": "Store", "type": "json"}
    assert flags["--old"]["deprecated"] is True
    assert flags["--no-fast"]["kind"] == "BooleanOptional"


def test_variables_have_the_defaults_that_hold_on_every_machine(snapshot):
    env = snapshot["env"]
    assert env["VLLM_MODE"]["default"] == "a"
    assert env["VLLM_MODE"]["type"] == "str"
    assert "env_with_choices" in env["VLLM_MODE"]["expr"]
    for name in ("VLLM_PATH", "VLLM_NAME", "VLLM_BAD"):
        assert "default" not in env[name]


def test_keys_names_and_classes_are_read(snapshot):
    assert snapshot["config_keys"] == {
        "CacheConfig": {"mode": "Optional[vllm.config.CUDAGraphMode]", "size": "int"}
    }
    assert snapshot["enums"] == {"CUDAGraphMode": ["NONE", "FULL"]}
    assert snapshot["literals"] == {
        "CacheDType": ["auto", "fp8"],
        "ROCM_QUANTIZATION": ["fp8", "awq"],
        "MODEL_CLASSES": ["LlamaForCausalLM", "NewForCausalLM"],
        "TOOL_PARSERS": ["new"],
        "REASONING_PARSERS": ["old", "older"],
        "SPECULATIVE_METHODS": ["mtp", "ngram", "x_mtp"],
        "ENCODER_DATA_CLASSES": ["AForConditionalGeneration", "B"],
    }


def test_the_tree_is_read_without_importing_it(snapshot):
    assert snapshot["metrics"] == ["vllm:num_requests_running"]
    assert snapshot["log"] == [
        "Starting to load model",
        "^No available memory for the cache blocks",
    ]
    assert snapshot["jobs"] == {"MI300": ["V1 Spec Decode"], "MI355": ["Samplers"]}
    assert snapshot["pins"] == {
        "aiter": "v0.1.16",
        "base": "rocm/dev-ubuntu-22.04:7.2.3-complete",
        "rocm": "7.2.3",
    }


def test_each_document_of_log_patterns_is_there_and_has_some(tool, monkeypatch):
    sources = tool.vllm_sources
    for name, keys in sources.LOG_PATTERNS.items():
        monkeypatch.setattr(sources, "LOG_PATTERNS", {name: keys})
        assert len(sources.log_marks()) > 5, name
    monkeypatch.setattr(sources, "LOG_PATTERNS", {"serving/gone.yml": ("causes",)})
    with pytest.raises(FileNotFoundError):
        sources.log_marks()


def test_the_newest_release_has_lines_of_phases_and_of_causes():
    document = knowledge("vllm/log_patterns.yml")
    held = {
        name for name, history in document["log_patterns"].items() if not history[-1].get("absent")
    }
    assert {"GPU KV cache size", "^No available memory for the cache blocks"} <= held


def test_the_releases_page_says_why_some_have_dashes(tool):
    import releases_page

    text = releases_page.unread({"pins": {"1.0": {"aiter": {}}, "1.1": {}, "1.2": {}}})
    assert "no source distribution of 1.1 and 1.2:" in text
    assert "before 1.0 only" in text


def test_a_hash_is_pinned_once_in_the_order_of_releases(tool, tmp_path, monkeypatch):
    pins = tmp_path / "pins.txt"
    pins.write_text("# Head.\nvllm==0.9.2 \\\n    --hash=sha256:0\n")
    monkeypatch.setattr(tool, "SOURCE_PINS", pins)
    archive = tmp_path / "vllm.tar.gz"
    for version in ("0.10.0", "0.9.10", "0.10.0"):
        archive.write_text(version)
        tool.pin(version, archive)
    lines = pins.read_text().splitlines()
    assert lines[0] == "# Head."
    assert [line.split()[0] for line in lines[1::2]] == [
        "vllm==0.9.2",
        "vllm==0.9.10",
        "vllm==0.10.0",
    ]
    assert all(line.startswith("    --hash=sha256:") for line in lines[2::2])


def states(tool, knowledge, *snapshots):
    files = tool.add(list(snapshots), knowledge)
    for name, text in files.items():
        (knowledge / name).write_text(text)
    return {name: yaml.safe_load(text) for name, text in files.items()}


def test_a_first_release_is_a_history_of_one_state(tool, snapshot, tmp_path):
    files = states(tool, tmp_path, snapshot)
    assert all(file["versions"] == ["1.0"] and file["source"] for file in files.values())
    assert files["flags.yml"]["flags"]["size"] == [
        {"from": "1.0", "names": ["--size", "-s"], "kind": "Store", "choices": ["1", "2"]}
    ]
    assert files["flags.yml"]["flags"]["fast"][0]["negative"] == ["--no-fast"]
    assert files["env.yml"]["env"]["VLLM_MODE"] == [
        {"from": "1.0", "type": "str", "default": "a", "choices": ["a", "b"], "ignore_case": True}
    ]
    assert files["config_keys.yml"]["config_keys"]["CacheConfig"]["mode"] == [
        {"from": "1.0", "type": "Optional[CUDAGraphMode]"}
    ]


def test_a_release_that_changes_nothing_adds_only_its_name(tool, snapshot, tmp_path):
    before = states(tool, tmp_path, snapshot)
    after = states(tool, tmp_path, {**snapshot, "version": "1.1"})
    for name, file in after.items():
        assert file["versions"] == ["1.0", "1.1"]
        assert {**file, "versions": None} == {**before[name], "versions": None}


def test_releases_keep_their_order_whenever_they_are_added(tool, snapshot, tmp_path):
    without = {**snapshot, "flags": {k: v for k, v in snapshot["flags"].items() if k != "--old"}}
    states(tool, tmp_path, {**snapshot, "version": "1.10"})
    files = states(tool, tmp_path, {**without, "version": "1.9"}, {**snapshot, "version": "1.2"})
    assert files["flags.yml"]["versions"] == ["1.2", "1.9", "1.10"]
    history = files["flags.yml"]["flags"]["old"]
    assert [(state["from"], state.get("absent", False)) for state in history] == [
        ("1.2", False),
        ("1.9", True),
        ("1.10", False),
    ]
    # A second reading takes the place of the first.
    files = states(tool, tmp_path, {**snapshot, "version": "1.9"})
    assert [state["from"] for state in files["flags.yml"]["flags"]["old"]] == ["1.2"]


def test_the_knowledge_is_as_the_tool_writes_it(tool):
    for name, text in tool.add([], KNOWLEDGE / "vllm").items():
        assert (KNOWLEDGE / "vllm" / name).read_text() == text


@pytest.mark.parametrize("text", ["{", '{"schema": "other/1", "version": "1"}', "[]", None])
def test_what_is_no_snapshot_is_refused_and_nothing_is_written(tool, tmp_path, capsys, text):
    path, knowledge = tmp_path / "snapshot.json", tmp_path / "out"
    knowledge.mkdir()
    if text is not None:
        path.write_text(text)
    assert tool.main(["add", str(path), "--knowledge", str(knowledge)]) == 1
    assert "snapshot.json" in capsys.readouterr().err
    assert not list(knowledge.iterdir())


def test_the_tool_reads_and_adds_from_the_command_line(tool, sources, tmp_path, capsys):
    read = ["read", "2.0", "--python", sys.executable, "--sources", str(sources)]
    assert tool.main(read) == 0
    path = tmp_path / "snapshot.json"
    path.write_text(capsys.readouterr().out)
    assert tool.main(["add", str(path), "--knowledge", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.yml")} == set(tool.FILES)


def test_sources_that_hold_no_vllm_are_refused(tool, tmp_path, capsys):
    asked = ["read", "2.0", "--python", sys.executable, "--sources", str(tmp_path)]
    assert tool.main(asked) == 1
    assert "no vllm/envs.py" in capsys.readouterr().err
