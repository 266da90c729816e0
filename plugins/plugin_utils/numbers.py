# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers as people read them: three digits, thousands apart."""

from __future__ import annotations

from math import floor, isfinite, log10

NONE = "–"


def number(value: float | None, figures: int = 3) -> str:
    """Return so many significant digits, thousands apart: 12,345, 1.46, 0.0123."""
    if value is None or not isfinite(value):
        return NONE
    if value == 0:
        return "0"
    digits = figures - 1 - floor(log10(abs(value)))
    shown = round(value, digits)
    return f"{shown:,.{max(digits, 0)}f}" if digits >= 0 else f"{value:,.0f}"


def whole(value: float | None) -> str:
    """Return a count without decimals where it has none."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if share is None else f"{share * 100:.0f} %"
