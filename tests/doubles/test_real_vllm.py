# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make e2e` prepares on the controller: the tiny model, the pins, the refusals."""

from __future__ import annotations

import json
import math
import struct

import pytest


@pytest.fixture(scope="session")
def make_model(load_tool):
    return load_tool("real_vllm/make_model.py")


@pytest.fixture
def build(load_tool, tmp_path, monkeypatch):
    """The builder with a pip that reports and installs what the test says."""
    module = load_tool("real_vllm/build.py")
    calls = []

    def pip(*arguments):
        calls.append(arguments)
        if "--report" in arguments:
            return json.dumps({"install": [{"metadata": {"version": module.offered}}]})
        return ""

    module.offered = "2.13.0+cpu"
    module.calls = calls
    monkeypatch.setattr(module, "pip", pip)
    monkeypatch.setattr(module, "PINS", tmp_path / "e2e.txt")
    module.PINS.write_text("torch==2.13.0 \\\n    --hash=sha256:00\nvllm-cpu==0.32.0\n")
    return module


def test_the_same_model_is_written_every_time(make_model, tmp_path):
    first, second = (make_model.write_model(tmp_path / name) for name in "ab")
    files = sorted(path.name for path in first.iterdir())
    assert files == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert [(first / name).read_bytes() for name in files] == [
        (second / name).read_bytes() for name in files
    ]


def test_the_weights_fill_their_file_without_gaps(make_model, tmp_path):
    data = (make_model.write_model(tmp_path) / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    del header["__metadata__"]
    end = 0
    for entry in header.values():
        assert entry["data_offsets"] == [end, end + 2 * math.prod(entry["shape"])]
        end = entry["data_offsets"][1]
    assert len(data) == 8 + length + end
    assert length % 8 == 0


@pytest.mark.parametrize(
    ("value", "raw"), [(1.0, b"\x80\x3f"), (-2.0, b"\x00\xc0"), (0.0, b"\0\0")]
)
def test_bfloat16_is_the_upper_half_of_float32(make_model, value, raw):
    assert make_model.bfloat16([value]) == raw


def test_every_byte_has_its_own_letter(make_model):
    letters = make_model.byte_letters()
    assert len(set(letters)) == 256
    assert letters[0x41] == "A"
    assert letters[0x20] == "Ġ"


def test_head_dim_and_vocabulary_fit_together(make_model):
    vocabulary = make_model.tokenizer()["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(make_model.CONFIG["vocab_size"]))
    assert make_model.CONFIG["head_dim"] >= 32
    assert vocabulary["<|end|>"] == make_model.CONFIG["eos_token_id"]


def test_a_build_installs_the_pins_and_writes_the_launcher(build, tmp_path):
    executable = build.build(tmp_path / "out")
    assert executable == tmp_path / "out/bin/vllm"
    assert executable.stat().st_mode & 0o111
    assert "--require-hashes" in build.calls[-1]
    assert (tmp_path / "out/site/vllm-0.32.0+cpu.dist-info/METADATA").is_file()


def test_a_second_build_does_nothing(build, tmp_path):
    build.build(tmp_path / "out")
    count = len(build.calls)
    build.build(tmp_path / "out")
    assert len(build.calls) == count


def test_changed_pins_build_again(build, tmp_path):
    build.build(tmp_path / "out")
    count = len(build.calls)
    build.PINS.write_text(build.PINS.read_text() + "more==1\n")
    build.build(tmp_path / "out")
    assert len(build.calls) > count


def test_torch_for_cuda_is_refused_in_one_line(build, tmp_path, monkeypatch, capsys):
    build.offered = "2.13.0"
    monkeypatch.setattr("sys.argv", ["build.py", str(tmp_path / "out")])
    assert build.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "make e2e needs the CPU build of torch (2.13.0+cpu), but pip finds 2.13.0" in message
    assert not (tmp_path / "out").exists()


def test_torch_is_pinned_to_its_cpu_wheel_alone(load_tool):
    pins = load_tool("real_vllm/pins.py")
    text = (
        "a==1 \\\n    --hash=sha256:11\n"
        "torch==2 \\\n    --hash=sha256:22 \\\n    --hash=sha256:33\nz==1\n"
    )
    assert pins.with_hashes(text, ["ab", "cd"]) == (
        "a==1 \\\n    --hash=sha256:11\n"
        "torch==2 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\nz==1\n"
    )
