# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A dashboard as it is written down in knowledge/telemetry/dashboards_*.yml, before it is JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["stat", "timeseries", "table", "state-timeline", "bargauge"]
Legend = Literal["none", "list", "table", "right"]
# From this value on (None: from the lowest) this colour; a name is a threshold of settings.yml.
Step = tuple[float | str | None, str]


@dataclass(frozen=True)
class Query:
    """One PromQL expression; ``legend`` names its series, in a table ``column`` its column.

    A ``limit`` is drawn as a dashed red line. ``only_when`` says after what event alone it has
    series; None: always. ``unit``, ``steps``, ``values`` and ``decimals`` are of this column alone,
    ``steps`` also of this value of a stat.
    """

    expr: str
    legend: str = ""
    column: str = ""
    limit: bool = False
    only_when: str | None = None
    unit: str | None = None
    steps: tuple[Step, ...] = ()
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    decimals: int | None = None
    color: str | None = None


@dataclass(frozen=True)
class Panel:
    """One picture: what it shows (``meaning``) and what to do when it looks wrong (``remedy``).

    ``width`` is of 24 columns, ``height`` of Grafana's rows. ``labels`` are a table's first columns
    by label, ``steps`` thresholds, drawn as lines in a timeseries; ``values`` what a value is
    called, with its colour. ``repeat`` makes one panel for each value of a variable, two in a line
    of their own; ``none`` stands where there is no value. ``link`` leads to a board, with the
    variables of it taken from ``link_labels`` of the row or series.
    """

    title: str
    kind: Kind
    meaning: str
    remedy: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    labels: dict[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    legend: Legend = "list"
    min: float | None = None
    max: float | None = None
    decimals: int | None = None
    stack: bool = False
    repeat: str | None = None
    sort: str | None = None
    link: str | None = None
    link_labels: tuple[str, ...] = ()
    none: str | None = None


@dataclass(frozen=True)
class Row:
    """Panels below one heading; with ``repeat`` once for each value of a variable."""

    title: str
    panels: tuple[Panel, ...]
    repeat: str | None = None
    collapsed: bool = False


@dataclass(frozen=True)
class Variable:
    """What a viewer chooses: values of ``label`` on the series ``of``; with ``many`` several."""

    name: str
    title: str
    of: str
    label: str
    many: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard: ``answers`` are the questions that it is there for."""

    uid: str
    title: str
    description: str
    answers: tuple[str, ...]
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    alerts: str = 'ALERTS{alertstate="firing"}'
    since: str = "now-6h"
    refresh: str = "30s"
