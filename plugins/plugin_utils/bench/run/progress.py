# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A benchmark's progress in lines for a person."""

from __future__ import annotations

from ..types import Bench
from ..words import between, found_text, level_text, load_text
from .drive import Progress


def words(progress: Progress) -> str:
    """Return one line of what begins, or of what has just been measured."""
    if progress.level is None:
        load = progress.load
        return f"{load.phase}: {load.workload.name}, {load_text(load)}, {load.requests} requests"
    return level_text(progress.level) + (" (measured before)" if progress.replayed else "")


def lines(bench: Bench) -> list[str]:
    """Return a benchmark in lines: its levels, then what each search found."""
    searches = [
        f"SLO of {found.workload}: {found_text(found)}"
        + (f"; {between(found.request_rate, 'requests/s')} served" if found.request_rate else "")
        for found in bench.searches
    ]
    return [*map(level_text, bench.levels), *searches]
