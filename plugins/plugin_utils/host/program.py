# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs and units as hosts have them: no collection to import from, and bounds for each unit."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ...module_utils import engine_causes, finding, kfd
from ..documents import knowledge
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


_UNITS = Path(__file__).parent / "units"


def unit_text(file: str, /, **values: object) -> str:
    """Return a unit or drop-in that lies in `units` beside this file, with what it may not do.

    Lines that begin with ; are for who reads it there.
    """
    lines = (_UNITS / file).read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith(";"))
    if "{sandbox}" in text and "sandbox" not in values:
        values["sandbox"] = sandbox(file)
    return text.format(**values)


def sandbox(unit: str, **more: str) -> str:
    """Return the lines of a unit that knowledge/units.yml has; ``more`` are directives of the day.

    Where a directive is less strict than elsewhere, the reason stands above it.
    """
    return "".join(_lines(unit, more))


def _lines(unit: str, more: dict[str, str]) -> Iterator[str]:
    facts = knowledge("units.yml")
    own = facts["units"][unit]
    yield f"# What it may not do. `systemd-analyze security {unit}` counts what is left.\n"
    for name in sorted({*facts["base"]["entries"], *own, *more}):
        entry = own.get(name, {"value": facts["base"]["entries"].get(name)})
        value = more.get(name, entry["value"])
        if "why" in entry:
            yield f"# {f'No {name}=. ' if value is None else ''}{entry['why']}\n"
        values = value if isinstance(value, list) else [] if value is None else [value]
        yield from (f"{name}={each}\n" for each in values)
