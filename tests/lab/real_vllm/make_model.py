# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a tiny Qwen3 of random weights, with its tokenizer and chat template, for the real vLLM.

    make_model.py OUTDIR [--name ORG/MODEL]

Needs no hub and nothing but the standard library: a safetensors file is a JSON header before the
raw numbers, and a byte-level tokenizer without merges is a table of 256 bytes. The same name gives
the same bytes every time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
from pathlib import Path
from typing import Any

NAME = "apiary/tiny-qwen3"
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
# Two layers, and the least head_dim that vLLM's CPU attention takes: under 1 MB of weights.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 256,
    "eos_token_id": 257,
    "vocab_size": 256 + len(SPECIAL),
}
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in a byte-level vocabulary.

    Bytes that print stand for themselves, the others for U+0100 upward in order (GPT-2's table).
    """
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printing else next(spare)) for byte in range(256)]


def tokenizer() -> dict[str, Any]:
    """Return tokenizer.json: one token a byte, and the special tokens after them."""
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    added = [
        {
            "id": 256 + index,
            "content": word,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index, word in enumerate(SPECIAL)
    ]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
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
            "vocab": {**vocabulary, **{word: 256 + index for index, word in enumerate(SPECIAL)}},
            "merges": [],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """Return tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONFIG["max_position_embeddings"],
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[1],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by its name in the checkpoint."""
    hidden, inner, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    query, key = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    return {
        "model.embed_tokens.weight": (CONFIG["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (CONFIG["vocab_size"], hidden),
        **{
            f"model.layers.{index}.{name}.weight": shape
            for index in range(CONFIG["num_hidden_layers"])
            for name, shape in layer.items()
        },
    }


def bfloat16(values: list[float]) -> bytes:
    """Return numbers as bfloat16: the upper half of each float32, little-endian."""
    whole = struct.pack(f"<{len(values)}f", *values)
    return b"".join(whole[at + 2 : at + 4] for at in range(0, len(whole), 4))


def safetensors(seed: int = 325) -> bytes:
    """Return the weights as one safetensors file: norms of 1, the rest small and random."""
    draw = random.Random(seed)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, shape in shapes().items():
        count = math.prod(shape)
        values = [1.0] * count if len(shape) == 1 else [draw.gauss(0, 0.05) for _ in range(count)]
        parts.append(bfloat16(values))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (end, end + 2 * count)}
        end += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def write_model(outdir: Path, name: str = NAME) -> Path:
    """Write the model's directory below ``outdir`` and return it."""
    target = outdir / name
    target.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": CONFIG,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
    }
    for file, data in documents.items():
        (target / file).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (target / "model.safetensors").write_bytes(safetensors())
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--name", default=NAME)
    arguments = parser.parse_args()
    print(write_model(arguments.outdir, arguments.name))


if __name__ == "__main__":
    main()
