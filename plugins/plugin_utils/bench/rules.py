# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol's numbers, from knowledge/bench/protocol.yml; a short lab run may replace some."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from ..documents import knowledge
from ..findings import error

_SECTIONS = ("requests", "warmup", "heal", "saturation", "slo", "open", "stress", "soak")


class Rules(SimpleNamespace):
    """How many requests, repeats and levels; what each means stands in the file."""


def rules(**changes: Any) -> Rules:
    """Return the protocol's numbers, with ``changes`` of them.

    Raises BENCH-RULES for a name that is none, and for a number below the file's floor: a level
    would be all ramp and no steady state, or a phase would go on at the same load.
    """
    facts = knowledge("bench/protocol.yml")
    known = {name: value for section in _SECTIONS for name, value in facts[section].items()}
    for name, value in changes.items():
        floor = facts["floors"].get(name, 0)
        if name not in known or name == "source":
            raise error("BENCH-RULES", name, "is no number of the protocol")
        # Written so that NaN is refused as well.
        possible = isinstance(value, int | float) and floor <= value < math.inf
        if not possible and not isinstance(known[name], list):
            raise error("BENCH-RULES", name, f"{value}, expected a number of at least {floor:g}")
    return Rules(**known | changes)
