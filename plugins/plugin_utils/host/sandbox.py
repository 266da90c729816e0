# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a unit beside the replicas may not do, as lines of its [Service] section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..documents import knowledge

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
