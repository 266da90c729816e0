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
    beside = Path(name).with_name(_QUANTIZATION) if name != "-" else None
    quantization = None
    if beside is not None and beside.is_file():
        found = read_json(read_text(str(beside)), str(beside))
        quantization = found if isinstance(found, Mapping) else None
    return read_config(read(name), name, quantization)
