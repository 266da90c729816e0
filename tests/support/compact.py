# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON for golden files: what fits into a line stands in one, as a person would write it."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 120


def compact(text: str) -> str:
    """Return a JSON document again, in few lines."""
    return "\n".join(_lines(json.loads(text), "", "")) + "\n"


def _lines(value: Any, before: str, indent: str) -> list[str]:
    """Return the lines of a value that stands behind ``before``."""
    whole = before + json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, (list, dict)) or len(indent + whole) <= WIDTH:
        return [indent + whole]
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [_lines(part, f"{json.dumps(key)}: ", deeper) for key, part in value.items()]
    elif all(isinstance(part, (str, int, float)) for part in value):
        parts = [[line] for line in _filled([json.dumps(part) for part in value], deeper)]
    else:
        parts = [_lines(part, "", deeper) for part in value]
    inner = [
        line + ("," if last and number < len(parts) else "")
        for number, part in enumerate(parts, start=1)
        for last, line in ((line is part[-1], line) for line in part)
    ]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return [f"{indent}{before}{opening}", *inner, f"{indent}{closing}"]


def _filled(words: list[str], indent: str) -> list[str]:
    """Return the words of a list, as many in a line as fit."""
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 3 <= WIDTH:
            lines[-1] += f", {word}"
        else:
            lines.append(indent + word)
    return lines
