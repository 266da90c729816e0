# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet as one HTML file that asks nobody for anything: a map of racks, a panel a host."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.judge import age_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.outliers import (
    facts_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    STATES,
    FleetReport,
    HostReport,
    HostState,
)

from apiary.app.inert import inline, policy
from apiary.bench.report.page import TEMPLATES
from apiary.fleet.report.words import SAID, outcome_text

_OWN = Path(__file__).parent / "templates"
# Read without colour, too: one sign a state.
SIGNS: Mapping[HostState, str] = {
    "failing": "✕",
    "quarantined": "⊘",
    "unreached": "∅",
    "unknown": "?",
    "warning": "!",
    "ok": "✓",
}
# More hosts than this are drawn small.
ROOMY = 160
_NOWHERE = "no rack"


def fleet_page(report: FleetReport, pictures: Mapping[str, str] | None = None) -> str:
    """Return the whole page; ``pictures`` are SVG documents by host."""
    script = (_OWN / "fleet.js").read_text(encoding="utf-8")
    short = short_names([host.host for host in report.hosts])
    return _template().render(
        report=report,
        policy=policy([script]),
        script=script,
        data=inline(_data(report, pictures or {})),
        signs=SIGNS,
        said=SAID,
        states=STATES,
        counts=dict(report.counts),
        sites=_sites(report.hosts),
        short=short,
        dense=len(report.hosts) > ROOMY,
        rows=_rows(report.hosts),
        differs=[one for one in report.shared if len(one.values) > 1],
        same=[one for one in report.shared if len(one.values) == 1],
        outcome=outcome_text(report.rollout) if report.rollout else None,
        fold=fold,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_OWN, TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    return environment.get_template("fleet.html.j2")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return what is left of each name without the words that all begin with: gpu-001 is 001."""
    first, last = (min(names), max(names)) if len(names) > 1 else ("", "")
    pairs = enumerate(zip(first, last, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), 0)
    common = first[:same]
    # Not within a word or number: 00 of 001 belongs to it.
    cut = max((found.end() for found in re.finditer(r"[-_.]", common)), default=0)
    return {name: name[cut:] or name for name in names}


def odd_text(host: HostReport) -> str:
    """Return in which facts a host is not as its peers."""
    return "; ".join(
        f"{one.fact} {one.value}, {one.hosts} peers have {one.usual}" for one in host.odd
    )


def _rows(hosts: Sequence[HostReport]) -> list[dict[str, Any]]:
    """Return the table's rows: a host each, but one for all that are odd alike and else right."""
    rows: list[dict[str, Any]] = []
    alike: dict[str, dict[str, Any]] = {}
    for host in hosts:
        odd = odd_text(host)
        if host.state == "ok" and not odd:
            continue
        row = {
            "hosts": [host.host],
            "racks": {host.place.rack or ""},
            "state": host.state,
            "why": odd if host.state == "ok" else "; ".join(filter(None, (host.why, odd))),
        }
        if host.state == "ok" and odd in alike:
            alike[odd]["hosts"].append(host.host)
            alike[odd]["racks"] |= row["racks"]
            continue
        if host.state == "ok":
            alike[odd] = row
        rows.append(row)
    return rows


def natural(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Return what sorts r2 before r10."""
    return tuple(
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"([0-9]+)", text)
    )


def _sites(hosts: Sequence[HostReport]) -> list[dict[str, Any]]:
    """Return the map: sites of rows of racks of hosts, each in its natural order."""
    places: dict[tuple[str, str], dict[str, list[HostReport]]] = {}
    for host in hosts:
        place = host.place
        where = places.setdefault((place.site or "", place.row or ""), {})
        where.setdefault(place.rack or _NOWHERE, []).append(host)
    return [
        {
            "name": ", ".join(word for word in (site, f"row {row}" if row else "") if word),
            "racks": [
                {"name": rack, "hosts": sorted(racks[rack], key=lambda one: natural(one.host))}
                for rack in sorted(racks, key=natural)
            ],
        }
        for (site, row), racks in sorted(
            places.items(), key=lambda one: tuple(map(natural, one[0]))
        )
    ]


class _Pool:
    """Values that many hosts share, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def put(self, value: Any) -> int:
        key = repr(value)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def _data(report: FleetReport, pictures: Mapping[str, str]) -> dict[str, Any]:
    """Return what the panels show: what hosts share is in ``pool`` and named by its place."""
    pool = _Pool()
    hosts = {host.host: _host(host, pool, pictures.get(host.host)) for host in report.hosts}
    return {
        "pool": pool.values,
        "hosts": hosts,
        "groups": {one.code: one.hosts for one in report.groups},
        "signs": SIGNS,
        "said": SAID,
    }


def _host(host: HostReport, pool: _Pool, picture: str | None) -> dict[str, Any]:
    put = pool.put
    place = host.place
    facts = facts_text(host.facts)
    made: dict[str, Any] = {
        "state": host.state,
        "why": host.why,
        "place": put([place.site, place.row, place.rack]),
        "facts": put(list(facts.items())),
        "checks": put(
            [[one.code, one.passed, one.failed, one.skipped, one.unknown] for one in host.checks]
        ),
        "sources": [
            [
                one.kind,
                one.path,
                one.at,
                None if one.age_seconds is None else age_text(one.age_seconds),
            ]
            for one in host.sources
        ],
        "failed": [
            [
                one.code,
                one.subject,
                one.state,
                one.found,
                one.expected,
                put([one.severity, one.remedy, one.source]),
            ]
            for one in host.failed
        ],
        "measured": [[one.code, one.subject, one.found, one.expected] for one in host.measured],
        "findings": [
            [one.subject, one.message, put([one.code, one.severity, one.remedy, one.source])]
            for one in _shown(host)
        ],
        "pending": put([[one.concern, one.changes, *one.reboot] for one in host.pending]),
        "running": put(
            [
                [one.deployment, one.model, one.engine, one.layout, one.replicas, one.up]
                for one in host.running
            ]
        ),
        "odd": [[one.fact, one.value, one.usual, one.hosts] for one in host.odd],
        "quarantined": to_document(host.quarantined),
        "last": to_document(host.last_run),
        "excerpts": [[one.code, one.subject, one.origin, one.text] for one in host.excerpts],
    }
    if picture:
        # An image runs no script and sees no style of the page.
        coded = base64.b64encode(picture.encode()).decode()
        made["picture"] = put(f"data:image/svg+xml;base64,{coded}")
    return {key: value for key, value in made.items() if value not in (None, [], ())}


def _shown(host: HostReport) -> list[Any]:
    """Return findings that are not already told as a failed check or an odd fact."""
    told = {(one.code, one.subject) for one in host.failed}
    return [
        one
        for one in host.findings
        if (one.code, one.subject) not in told and one.code != "FLEET-REPORT-STANDS-OUT"
    ]
