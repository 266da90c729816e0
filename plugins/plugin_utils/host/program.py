# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sources as hosts run them, where there is no collection to import readers from."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from ...module_utils import engine_causes, finding, kfd
from ..findings import explained_codes

READERS = (Path(engine_causes.__file__), Path(kfd.__file__))
_FUTURE = "from __future__ import annotations\n"
_NEIGHBOUR = re.compile(r"^from \.(\.?)(\w+) import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_IMPORT = re.compile(
    r"^from \.+(?:module_utils\.)?(engine_causes|finding|kfd) import ", re.MULTILINE
)


def standalone(path: Path) -> str:
    """Return a program of one file: what it imports of us stands in place of the imports."""

    def body(found: re.Match[str]) -> str:
        library = (path.parents[1] if found[1] else path.parent) / f"{found[2]}.py"
        return library.read_text(encoding="utf-8").partition(_FUTURE)[2]

    text, count = _NEIGHBOUR.subn(body, path.read_text(encoding="utf-8"))
    if not count or re.search(r"^from \.", text, re.MULTILINE):
        raise AssertionError(f"{path.name}: an import of a neighbour has changed its form")
    return text


def packaged(path: Path) -> str:
    """Return a source of a package that has the readers and the findings beside it."""
    text = _IMPORT.sub(r"from .\1 import ", path.read_text(encoding="utf-8"))
    if "from .." in text:
        raise AssertionError(f"{path.name}: imports of the collection have changed their form")
    return text


@functools.cache
def findings(*areas: str) -> str:
    """Return the class of findings with what the catalogue says of some areas' codes.

    Programs of a host have nobody beside them who would explain what they print.
    """
    text = Path(finding.__file__).read_text(encoding="utf-8")
    entries = (f"    {code!r}: {entry!r},\n" for code, entry in explained_codes(areas).items())
    return f"{text}\n\n_ENTRIES = {{\n{''.join(entries)}}}\nuse_catalogue(_ENTRIES.get)\n"
