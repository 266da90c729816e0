# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for what comes true by itself; every wait of a test has an end."""

from __future__ import annotations

import time
from collections.abc import Callable


def await_true(condition: Callable[[], object], seconds: float = 120) -> None:
    """Return when a condition holds, which is asked ever less often; fail after so long."""
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        assert waited < seconds, f"not true within {seconds:g} s"
        time.sleep(min(0.01 + waited / 10, 0.5))
