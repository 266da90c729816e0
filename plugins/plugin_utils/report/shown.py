# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report shows of levels and loads: knowledge/bench/shown.yml says what each field means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from ..documents import from_document, knowledge


@dataclass(frozen=True)
class Column:
    """One column: its heading, what it means, the value that it shows, and how."""

    head: str
    hint: str = ""
    value: str = ""
    show: Literal["number", "whole", "percent", "milliseconds"] = "number"
    minor: bool = False
    numeric: bool = True


@dataclass(frozen=True)
class Drawing:
    """One figure: a value by load, or ``against`` a latency, whose axis says ``axis``."""

    id: str
    title: str
    value: str
    note: str
    unit: str = ""
    per_gpu: bool = False
    against: str | None = None
    axis: str = ""
    scale: float = 1
    log: bool = False
    limited: bool = False
    beside: str | None = None
    rings: bool = False
    top: float | None = None


@dataclass(frozen=True)
class Shown:
    """The columns of every level and of each load, the figures of closed and of open loops."""

    levels: tuple[Column, ...]
    loads: tuple[Column, ...]
    closed: tuple[Drawing, ...]
    open: tuple[Drawing, ...]


@cache
def shown() -> Shown:
    """Return what the file says."""
    return from_document(Shown, dict(knowledge("bench/shown.yml")), "bench/shown.yml")
