# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a model's files on the controller, for the adapters: each of them reads the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .files import read_text
from .model.config import read_config, read_json
from .model.types import Architecture

_QUANTIZATION = "hf_quant_config.json"


def read_checkpoint(name: str, read: Callable[[str], str] = read_text) -> Architecture:
    """Return the model of a config.json, with the hf_quant_config.json that may lie beside it.

    ``read`` reads the first; "-" is stdin, beside which nothing lies.
    """
    path = Path(name).with_name(_QUANTIZATION)
    beside: dict[str, object] = {}
    if name != "-" and path.is_file():
        found = read_json(read_text(str(path)), str(path))
        beside = {"quantization_config": found} if isinstance(found, Mapping) else {}
    if name != "-" and any(path.parent.glob("model*.safetensors*")):
        own = path.with_name("params.json").is_file()  # Mistral's: vLLM takes both, or neither
        own = own and any(path.parent.glob("consolidated*.safetensors"))
        beside["config_format"] = "mistral" if own else "hf"
    return read_config(read(name), name, beside)
