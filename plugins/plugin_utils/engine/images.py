# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which AITER and ROCm an engine has: the deployment says, or upstream's image (images.yml)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..deployment import EngineSpec
from ..documents import knowledge
from .versions import parse_version

_STACK = ("aiter", "rocm")


def stack(engine: EngineSpec) -> dict[str, str | None]:
    """Return `aiter` and `rocm` of an engine; None is unknown."""
    pins = pins_of(engine.version) if _official(engine) else {}
    return {name: getattr(engine, name) or pins.get(name) for name in _STACK}


def pins_of(release: str) -> Mapping[str, str]:
    """Return what upstream's image of a release has; nothing where that is not known."""
    place = parse_version(release)
    for entry in knowledge("vllm/images.yml")["releases"]:
        if place == parse_version(entry["version"]):
            return {name: entry[name] for name in _STACK if name in entry}
    return {}


def _official(engine: EngineSpec) -> bool:
    """Return whether the image is upstream's of that release, as its name and tag say."""
    names = "|".join(map(re.escape, knowledge("vllm/images.yml")["repositories"]))
    whole = rf"(.*/)?({names})(:v{re.escape(engine.version)})?(@.*)?"
    return re.fullmatch(whole, engine.image or "") is not None
