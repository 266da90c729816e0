# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what engines measured of themselves, /run/apiary/UNIT/figures.json of their supervisors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..observation import MOST_DEVICES
from ..types import Start

_PATH = re.compile(r"/run/apiary/(apiary-[a-z0-9-]{1,80}\.service)/figures\.json")
_WORDS = {
    "engine_version": r"[\w.+-]{1,40}",
    "gpu_model": r"[\w -]{1,40}",
    "recipe": r"[0-9a-f]{16}",
}
_GPU = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:#\d{1,3})?")
_MOST = 2**60


def parse(files: Mapping[str, str]) -> tuple[Start, ...]:
    """Return the starts in order of their units; what no supervisor writes is none."""
    found = ((_PATH.fullmatch(path), files[path]) for path in sorted(files))
    starts = [_start(match[1], text) for match, text in found if match]
    return tuple(start for start in starts if start is not None)[:MOST_DEVICES]


def _start(unit: str, text: str) -> Start | None:
    try:
        facts = json.loads(text)
        words = {name: facts[name] for name in _WORDS}
        if not all(re.fullmatch(pattern, words[name]) for name, pattern in _WORDS.items()):
            return None
        gpus = tuple(key for key in facts["gpus"] if _GPU.fullmatch(key))
        names = ("kv_tokens", "weights_bytes_per_gpu")
        at, *figures = _numbers(facts["at"], *(facts["actual"].get(name) for name in names))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if at is None or len(gpus) > MOST_DEVICES:
        return None
    return Start(
        unit, at, **words, gpus=gpus, kv_tokens=figures[0], weights_bytes_per_gpu=figures[1]
    )


def _numbers(*values: Any) -> list[int | None]:
    return [
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST
        else None
        for value in values
    ]
