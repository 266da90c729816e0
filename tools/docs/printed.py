# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which files print a finding's code."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CODE = r"(?<![A-Z0-9-]){}(?![A-Z0-9-])"
_FOLDERS = {
    "playbooks": (".yml",),
    "plugins": (".py", ".yml"),
    "roles": (".py", ".yml", ".j2"),
    "src": (".py",),
    "tests/lab": (".py",),
}


def printed_by(code: str) -> tuple[str, ...]:
    """Return the files of the repository that have a code."""
    pattern = re.compile(_CODE.format(re.escape(code)))
    matches = [(name, text) for name, text in _texts() if code in text and pattern.search(text)]
    # A Python file that prints it has it as a text of its own; others only speak of it.
    printing = [name for name, text in matches if not name.endswith(".py") or f'"{code}' in text]
    return tuple(printing or (name for name, _ in matches))


@functools.cache
def _texts() -> tuple[tuple[str, str], ...]:
    return tuple((name, path.read_text(encoding="utf-8")) for name, path in _files())


def _files() -> Iterator[tuple[str, Path]]:
    """Yield what can print findings; the catalogue itself is none of it."""
    for folder, endings in _FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            about = name.startswith("plugins/plugin_utils/knowledge/finding")
            if path.suffix in endings and not about and "/docs/" not in name:
                yield name, path
