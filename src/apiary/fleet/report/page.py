# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet as one HTML file that asks nobody for anything: a map of racks, a panel a host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
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
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import age_text, natural

from apiary.app.inert import inline, policy, template
from apiary.fleet.report.summary import STATE_NAMES, outcome_text

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


def fleet_page(report: FleetReport) -> str:
    """Return the whole page."""
    script = (_OWN / "fleet.js").read_text(encoding="utf-8")
    short = short_names([host.host for host in report.hosts])
    return _template().render(
        report=report,
        policy=policy([script]),
        script=script,
        data=inline(_data(report)),
        signs=SIGNS,
        said=STATE_NAMES,
        states=STATES,
        counts=dict(report.counts),
        sites=_sites(report.hosts),
        short=short,
        dense=len(report.hosts) > ROOMY,
        rows=_rows(report.hosts),
        differs=[item for item in report.shared if len(item.values) > 1],
        same=[item for item in report.shared if len(item.values) == 1],
        outcome=outcome_text(report.rollout) if report.rollout else None,
        fold=fold,
    )


@cache
def _template() -> jinja2.Template:
    return template(_OWN / "fleet.html.j2")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return what is left of each name without the words that all begin with: gpu-001 is 001."""
    common = os.path.commonprefix(list(names)) if len(names) > 1 else ""  # noqa: RUF071 - by letters
    # Not within a word or number: 00 of 001 belongs to it.
    cut = max((found.end() for found in re.finditer(r"[-_.]", common)), default=0)
    return {name: name[cut:] or name for name in names}


def _rows(hosts: Sequence[HostReport]) -> list[dict[str, Any]]:
    """Return the table's rows: a host each, but one for all that are odd alike and else right."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for host in hosts:
        facts = (f"{one.fact} {one.value}, {one.hosts} peers have {one.usual}" for one in host.odd)
        odd, right = "; ".join(facts), host.state == "ok"
        if odd or not right:
            why = odd if right else "; ".join(filter(None, (host.why, odd)))
            new: dict[str, Any] = {"hosts": [], "racks": set(), "state": host.state, "why": why}
            row = rows.setdefault((odd, "") if right else ("", host.host), new)
            row["hosts"].append(host.host)
            row["racks"].add(host.place.rack or "")
    return list(rows.values())


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


def _data(report: FleetReport) -> dict[str, Any]:
    """Return what the panels show: what hosts share is in ``pool`` and named by its place."""
    pool = _Pool()
    hosts = {host.host: _host(host, pool) for host in report.hosts}
    return {
        "pool": pool.values,
        "hosts": hosts,
        "groups": {group.code: group.hosts for group in report.groups},
        "signs": SIGNS,
        "said": STATE_NAMES,
    }


def _host(host: HostReport, pool: _Pool) -> dict[str, Any]:
    """Return what a panel shows of a host: the report's own parts, all but texts in the pool."""
    document = to_document(host) | {
        "facts": facts_text(host.facts),
        "findings": to_document(_shown(host)),
    }
    for source in document["sources"]:
        age = source.pop("age_seconds")
        source["age"] = None if age is None else age_text(age)
    return {
        name: value if isinstance(value, str) else pool.put(value)
        for name, value in document.items()
        if value and name not in ("host", "wanted")
    }


def _shown(host: HostReport) -> list[Any]:
    """Return findings that are not already told as a failed check or an odd fact."""
    told = {(item.code, item.subject) for item in host.failed}
    return [
        finding
        for finding in host.findings
        if (finding.code, finding.subject) not in told and finding.code != "FLEET-REPORT-STANDS-OUT"
    ]
