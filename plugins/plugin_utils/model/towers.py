# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Vision and audio towers: what the config says of them, and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from .families import Reader
from .formula import UnknownError, evaluate, scoped
from .types import Architecture

# Sections of a config.json that describe a tower.
_SECTIONS = ("vision_config", "audio_config", "vision_cfg", "sound_config", "vit_config")
# Of these one says that a model takes recordings; the last is Whisper's, which has no section.
_AUDIO = ("audio_config", "sound_config", "audio_processor", "num_mel_bins")


def vision(keys: Reader) -> dict[str, Any] | None:
    """Return what the config says of its vision tower, as it stands there; None without one."""
    tower = keys.mapping("vision_config")
    return None if tower is None else dict(tower)


def hears(keys: Reader) -> bool | None:
    """Return True for a model that takes recordings, else None."""
    return any(keys.has(name) for name in _AUDIO) or None


def parameters(keys: Reader, architecture: Architecture) -> int | None:
    """Return the parameters of all towers and projectors, 0 without one.

    None, with a finding, if one is not known or a dimension of it is missing.
    """
    known = keys.family.get("towers", {})
    total: int | None = 0
    found = False
    for section in dict.fromkeys((*known, *_SECTIONS)):
        given = keys.mapping(section)
        if given is None:
            if keys.has(section):
                return None
            continue
        found = True
        size = _parameters(keys, known.get(section), section, architecture)
        total = None if total is None or size is None else total + size
    if known and not found:
        keys.note(
            "MODEL-NO-TOWER",
            f"{architecture.model_type} has a tower, but the file has no"
            f" {' or '.join(known)}; the language model alone is counted",
        )
    return total


def _parameters(
    keys: Reader, tower: str | Mapping[str, str] | None, section: str, architecture: Architecture
) -> int | None:
    towers = knowledge("models/towers.yml")["towers"]
    kind = section.partition("_")[0]
    if isinstance(tower, Mapping):  # one wrapper may hold several kinds of tower
        given = keys.mapping(section) or {}
        tower = tower.get(str(given.get("model_type")))
    if tower is None or tower not in towers:
        keys.note(
            "MODEL-UNKNOWN-VISION",
            f"the {kind} tower of {architecture.model_type} is not known; parameters stay unknown",
        )
        return None
    facts = towers[tower]
    family = {part: facts.get(part, {}) for part in ("defaults", "keys")}
    inner = keys.below(section, family)
    if inner is None:
        return None

    def number(name: str) -> int:
        if name != "text_hidden":
            return inner.number(name)
        if architecture.hidden_size is None:
            raise UnknownError(name)
        return architecture.hidden_size

    try:
        value = scoped(facts.get("let", {}), number)
        return sum(evaluate(formula, value) for formula in facts["terms"].values())
    except UnknownError:
        return None
