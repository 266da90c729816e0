# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lay out a real model of 135 million parameters as its repository at a hub has it.

    model.py OUTDIR

takes SmolLM2-135M-Instruct (Apache-2.0) from the package that requirements/model.txt pins, where it
is one GGUF file of 4-bit blocks, and writes OUTDIR/ORG/NAME: weights of 16 bits, config.json,
tokenizer and chat template. A second run does nothing while the pins and this file are unchanged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

HERE = Path(__file__).resolve()
PINS = HERE.parents[3] / "requirements/model.txt"
NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
# https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: kinds of values by their number.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SCALARS |= {12: "d"}
TEXT, ARRAY = 8, 9
BLOCK = 32  # weights that share a scale
# Names of tensors there and here; what is in a layer has `blk.N.` before it there.
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
Weights = Any  # a numpy array


@dataclass(frozen=True)
class Tensor:
    """A tensor's shape, kind, and where it begins behind the header."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class Reader:
    """A GGUF file's values and tensors, by name."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        if self._take("4s") != b"GGUF" or self._take("I") != 3:
            raise ValueError("not a GGUF file of version 3")
        tensors, values = self._take("Q"), self._take("Q")
        self.values = {self._text(): self._value(self._take("I")) for _ in range(values)}
        self.tensors = {self._text(): self._tensor() for _ in range(tensors)}
        alignment = self.values.get("general.alignment", 32)
        self.first = -(-self.at // alignment) * alignment

    def _take(self, form: str) -> Any:
        (found,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def _text(self) -> str:
        raw: bytes = self._take(f"{self._take('Q')}s")
        return raw.decode()

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind == ARRAY:
            inner, count = self._take("I"), self._take("Q")
            return [self._value(inner) for _ in range(count)]
        return self._take(SCALARS[kind])

    def _tensor(self) -> Tensor:
        # Its innermost dimension comes first.
        shape = tuple(self._take("Q") for _ in range(self._take("I")))[::-1]
        return Tensor(shape, self._take("I"), self._take("Q"))

    def weights(self, tensor: Tensor) -> Weights:
        """Return a tensor's numbers as float32."""
        size, read = KINDS[tensor.kind]
        count = int(numpy.prod(tensor.shape))
        blocks = count // (1 if tensor.kind < 2 else BLOCK)
        raw = numpy.frombuffer(
            self.data, numpy.uint8, blocks * size, self.first + tensor.offset
        ).reshape(blocks, size)
        return read(raw).astype(numpy.float32).reshape(tensor.shape)


def _float16(raw: Weights) -> Weights:
    return numpy.ascontiguousarray(raw).view("<f2").astype(numpy.float32)


def _q4_1(raw: Weights) -> Weights:
    nibbles = raw[:, 4:]
    levels = numpy.concatenate([nibbles & 15, nibbles >> 4], axis=1)
    return levels * _float16(raw[:, :2]) + _float16(raw[:, 2:4])


def _q8_0(raw: Weights) -> Weights:
    return raw[:, 2:].view(numpy.int8) * _float16(raw[:, :2])


# By a tensor's kind: bytes of a block, and what reads blocks.
KINDS: dict[int, tuple[int, Callable[[Weights], Weights]]] = {
    0: (4, lambda raw: raw.view("<f4")),
    1: (2, _float16),
    3: (20, _q4_1),
    8: (34, _q8_0),
}


def tensors(reader: Reader) -> Iterator[tuple[str, Weights]]:
    """Yield the weights by the names that a Llama's checkpoint has, in float16."""
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    for full, tensor in reader.tensors.items():
        weights = reader.weights(tensor)
        name = full.removesuffix(".weight")
        if name.startswith("blk."):
            _, layer, part = name.split(".", 2)
            if part in heads:  # llama.cpp has the halves of each head's dimensions side by side
                rows, columns = weights.shape
                split = weights.reshape(reader.values[heads[part]], -1, 2, columns)
                weights = split.swapaxes(1, 2).reshape(rows, columns)
            target = f"model.layers.{layer}.{LAYER[part]}"
        else:
            target = OUTER[name]
        yield f"{target}.weight", weights.astype("<f2")


def safetensors(weights: dict[str, Weights]) -> bytes:
    """Return a safetensors file: a JSON header before the raw numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, each in weights.items():
        header[name] = {
            "dtype": "F16",
            "shape": each.shape,
            "data_offsets": (end, end + each.nbytes),
        }
        end += each.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    parts = (numpy.ascontiguousarray(each).tobytes() for each in weights.values())
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def tokenizer(tokens: list[str], kinds: list[int], merges: list[str]) -> dict[str, Any]:
    """Return tokenizer.json: a byte-level BPE that takes digits one by one."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level |= {"use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": place, "content": token, "special": True, **plain}
            for place, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == 3  # a control token
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
        },
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: place for place, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def documents(values: dict[str, Any], tied: bool) -> dict[str, dict[str, Any]]:
    """Return the JSON files beside the weights."""
    tokens = values["tokenizer.ggml.tokens"]
    first, last = (values[f"tokenizer.ggml.{end}_token_id"] for end in ("bos", "eos"))
    merges, kinds = values["tokenizer.ggml.merges"], values["tokenizer.ggml.token_type"]
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": values["llama.embedding_length"],
            "intermediate_size": values["llama.feed_forward_length"],
            "num_hidden_layers": values["llama.block_count"],
            "num_attention_heads": values["llama.attention.head_count"],
            "num_key_value_heads": values["llama.attention.head_count_kv"],
            "hidden_act": "silu",
            "max_position_embeddings": values["llama.context_length"],
            "rms_norm_eps": values["llama.attention.layer_norm_rms_epsilon"],
            "rope_theta": values["llama.rope.freq_base"],
            "tie_word_embeddings": tied,
            "attention_bias": False,
            "torch_dtype": "float16",
            "bos_token_id": first,
            "eos_token_id": last,
            "vocab_size": len(tokens),
        },
        "tokenizer.json": tokenizer(tokens, kinds, merges),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": values["llama.context_length"],
            "bos_token": tokens[first],
            "eos_token": tokens[last],
            "chat_template": values["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
        },
    }


def convert(data: bytes, target: Path) -> None:
    """Write what a GGUF file has of a Llama below ``target``."""
    reader = Reader(data)
    weights = dict(tensors(reader))
    target.mkdir(parents=True, exist_ok=True)
    for name, text in documents(reader.values, "lm_head.weight" not in weights).items():
        (target / name).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    (target / "model.safetensors").write_bytes(safetensors(weights))


def build(outdir: Path) -> Path:
    """Write the model below ``outdir`` unless it is current, and return its directory."""
    target, mark = outdir / NAME, outdir / "stamp"
    stamp = hashlib.sha256(HERE.read_bytes() + PINS.read_bytes()).hexdigest()
    if mark.is_file() and mark.read_text() == stamp:
        return target
    mark.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
        command += ["--no-deps", "--require-hashes", "-d", scratch, "-r", str(PINS)]
        subprocess.run(command, check=True)
        [wheel] = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            [member] = [name for name in archive.namelist() if name.endswith(".gguf")]
            convert(archive.read(member), target)
    mark.write_text(stamp)
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    print(build(parser.parse_args().outdir.resolve()))
