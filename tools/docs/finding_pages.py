# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finding codes: one table for the repository; an index and a page for each code for the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from printed import printed_by
from text import code, linked, table

from apiary.help.finding_command import Entry, areas, catalogue, see_also

HEAD = """\
Every warning and refusal has a stable code. An error stops what was asked for; warnings and
notes stay with it. `apiary finding CODE` prints a code's page in the terminal.
"""


def whole() -> str:
    """Return the table of all codes, as it is kept in the repository."""
    entries = catalogue().values()
    lines = ["# Findings\n", HEAD]
    lines += table(
        ("code", "severity", "meaning", "what shows it", "what to do"),
        ((code(one.code), one.severity, one.meaning, one.evidence, one.remedy) for one in entries),
    )
    return "\n".join(lines)


def pages(mentions: Mapping[str, Sequence[str]], titles: Mapping[str, str]) -> dict[str, str]:
    """Return the pages below reference/findings/: an index by area, and one for each code.

    ``mentions`` are pages of docs/ by the code that they name, ``titles`` what pages are called.
    """
    made = {"index.md": _index()}
    for entry in catalogue().values():
        reading = dict.fromkeys((*areas()[entry.area].reading, *mentions.get(entry.code, ())))
        links = [f"[{titles.get(page, page)}](../../{page})" for page in reading]
        made[f"{entry.code}.md"] = _page(entry, links)
    return made


def _index() -> str:
    lines = ["# Findings\n", HEAD]
    for name, area in areas().items():
        entries = [one for one in catalogue().values() if one.area == name]
        if not entries:
            continue
        lines.append(f"## {name}: {area.about} {{#{name.lower()}}}\n")
        rows = ((f"[`{one.code}`]({one.code}.md)", one.severity, one.meaning) for one in entries)
        lines += table(("code", "severity", "meaning"), rows)
    return "\n".join(lines)


def _page(entry: Entry, reading: Sequence[str]) -> str:
    area = areas()[entry.area]
    lines = [
        f"# {entry.code}\n",
        f"**{entry.severity}** · [{area.about}](index.md#{entry.area.lower()})\n",
        f"## Meaning\n\n{entry.meaning}\n",
        f"## Evidence\n\n{entry.evidence}\n",
        f"## Remedy\n\n{entry.remedy}\n",
    ]
    if entry.source:
        lines.append(f"## Source\n\n{linked(entry.source)}\n")
    also = [f"[`{other}`]({other}.md)" for other in see_also(entry)]
    lines.append("## See also\n")
    lines += [f"- {', '.join(also)}"] if also else []
    lines += [f"- {', '.join(reading)}"] if reading else []
    lines.append(f"- printed by {', '.join(code(file) for file in printed_by(entry.code))}\n")
    return "\n".join(lines)
