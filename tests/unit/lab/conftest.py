# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's programs are no package: they are found by path, as when they run."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
for place in (str(TESTS / "lab"), str(TESTS / "vm")):
    if place not in sys.path:
        sys.path.insert(0, place)
