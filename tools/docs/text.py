# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Markdown that every generated page is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def cell(text: object) -> str:
    """Return text that stays within a table's cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return text as code, or nothing where there is none."""
    return f"`{text}`" if text not in (None, "") else ""


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a Markdown table and the empty line after it."""
    names = list(head)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def linked(text: str) -> str:
    """Return a text whose addresses are links."""
    return re.sub(r"(?<![<(])(https?://[^\s<>)]*[^\s<>),.;:])", r"<\1>", text)


def marked_up(text: str) -> str:
    """Return Ansible's markup (C, V, O, M, I, B, U, L) as Markdown."""
    text = re.sub(r"\b[CVOEP]\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"`\1`", text)
    text = re.sub(r"\bRV\(([^()]*)\)", r"`\1`", text)
    text = re.sub(r"\bM\(([^()]*)\)", r"`\1`", text)
    text = re.sub(r"\bL\(([^,()]*),\s*([^()]*)\)", r"[\1](\2)", text)
    text = re.sub(r"\bU\(([^()]*)\)", r"<\1>", text)
    return re.sub(r"\b[IB]\(([^()]*)\)", r"*\1*", text)


def paragraph(text: str | list[str]) -> str:
    """Return a description, which Ansible allows to be a text or a list of them."""
    parts = [text] if isinstance(text, str) else text
    return " ".join(marked_up(" ".join(part.split())) for part in parts)
