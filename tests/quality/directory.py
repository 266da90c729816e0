# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies of a model's directory with one thing in them wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

OTHER = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"


def broken(model: Path, out: Path, wrong: str) -> Path:
    """Return a copy of ``model`` that is wrong as ``wrong`` names it; weights are linked."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    for path in model.iterdir():
        if path.suffix == ".safetensors":
            os.symlink(path, out / path.name)
        else:
            shutil.copy(path, out / path.name)
    settings = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
    if wrong == "template-other":
        settings["chat_template"] = OTHER
    elif wrong == "template-system":
        text = settings["chat_template"]
        settings["chat_template"] = (
            "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + text
        )
    elif wrong == "tokenizer-space":
        for step in tokenizer["pre_tokenizer"]["pretokenizers"]:
            step["add_prefix_space"] = True
    elif wrong == "tokenizer-merges":
        del tokenizer["model"]["merges"][-1000:]
    else:
        raise ValueError(wrong)
    (out / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (out / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return out
