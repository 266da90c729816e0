# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings on the controller: the class that hosts have, explained by the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..module_utils.finding import (
    ApiaryError,
    Finding,
    Severity,
    error,
    has_errors,
    use_catalogue,
)

__all__ = ["ApiaryError", "Finding", "Severity", "error", "explanation", "has_errors"]

_FOLDER = Path(__file__).parent / "knowledge" / "findings"
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _texts() -> tuple[str, ...]:
    return tuple("\n" + path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.yml")))


@cache
def explanation(code: str) -> Mapping[str, Any] | None:
    """Return what the catalogue says of a code, or None.

    Only the entry itself is parsed: the whole catalogue costs a tenth of a second.
    """
    for text in _texts():
        _before, key, after = text.partition(f"\n{code}:\n")
        if key:
            lines = []
            for line in after.splitlines():
                if line and not line.startswith(" "):
                    break
                lines.append(line)
            entry: Mapping[str, Any] = yaml.load("\n".join(lines), Loader=_YAML)  # noqa: S506 - a safe loader
            return entry
    return None


use_catalogue(explanation)
