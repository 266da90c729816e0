# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/telemetry.md: alerts, dashboards, recorded series, and what hosts tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from text import code, table

BOARDS = Path(__file__).parents[1] / "dashboards"

HEAD = """# Alerts, dashboards and series

What Prometheus records and when it calls somebody, as the role `monitoring` and `apiary telemetry`
write it. A dashboard or a rule of your own should read recorded series: they are the same for every
version of the engine.
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    lines += _alerts(knowledge("telemetry/alerts.yml"))
    lines.append("## Dashboards\n")
    for path in sorted(BOARDS.glob("*.yml")):
        lines += _dashboard(yaml.safe_load(path.read_text(encoding="utf-8")))
    lines += _recorded(knowledge("telemetry/recording.yml"))
    lines += _host(knowledge("telemetry/host.yml"))
    return "\n".join(lines)


def _alerts(facts: dict[str, Any]) -> Iterator[str]:
    yield "## Alerts\n"
    yield "critical: now, users feel it or will; warning: today; info: when there is time.\n"
    rows = (
        (code(one["alert"]), one["severity"], one.get("for", "at once"), _plain(one["description"]))
        for one in facts["alerts"]
    )
    yield from table(("alert", "severity", "for", "what it means"), rows)
    for one in facts["alerts"]:
        yield f"### {one['alert']}\n"
        yield f"{_plain(one['description'])}\n"
        yield f"```promql\n{one['expr'].strip()}\n```\n"
        yield f"- what to do: {_plain(one['remedy'])}"
        yield f"- labels: {', '.join(map(code, one.get('labels', ())))}"
        yield f"- needs: {', '.join(map(code, one.get('needs', ())))}"
        yield f"- source: {_plain(one.get('source', facts.get('source', '')))}\n"


def _dashboard(facts: dict[str, Any]) -> Iterator[str]:
    yield f"### {facts['title']}\n"
    yield f"{_plain(facts['description'])} It answers:\n"
    yield from (f"- {_plain(answer)}" for answer in facts["answers"])
    yield ""
    rows = (
        (panel["title"], _plain(panel.get("meaning", "")), _plain(panel.get("remedy", "")))
        for row in facts["rows"]
        for panel in row["panels"]
    )
    yield from table(("panel", "meaning", "what to do"), rows)


def _recorded(facts: dict[str, Any]) -> Iterator[str]:
    yield "## Recorded series\n"
    for group in facts["groups"]:
        rows = [
            (
                code(one["record"]),
                one.get("unit", ""),
                ", ".join([one.get("labels", ""), *one.get("more", ())]).strip(", "),
                _plain(one.get("meaning", "")),
                _plain(one.get("only_when", "")),
            )
            for one in group.get("series", ())
            if "record" in one
        ]
        if rows:
            yield f"### {group['name']}\n"
            yield from table(("series", "unit", "labels", "meaning", "only with"), rows)
    yield f"Source: {_plain(facts['source'])}.\n"


def _host(facts: dict[str, Any]) -> Iterator[str]:
    rows = [
        (
            code(name),
            ", ".join(map(code, one["labels"])),
            f"{_plain(one['help'])} {_plain(one.get('when', ''))}",
        )
        for name, one in facts["metrics"].items()
    ]
    if rows:
        yield "## What a host says of itself\n"
        yield "Of the role `telemetry`, by node_exporter's textfile collector.\n"
        yield from table(("series", "labels", "meaning"), rows)


def _plain(text: object) -> str:
    """Return a text that Markdown leaves as it is: templates and addresses too."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("*", "\\*")
