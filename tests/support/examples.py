# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many examples Hypothesis tries: few in CI, many at night (tests/conftest.py)."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """Return settings with so many times the examples that the profile has."""
    return settings(max_examples=max(5, round(share * settings().max_examples)))
