#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the unit suite several times while other processes keep every core busy.

    busy.py [TIMES]

A test that waits for a clock fails here. Ends with 1 at the first run that is not green.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

SPIN = "while True: pass"


def main(times: int) -> int:
    """Run the suite so many times; return the exit status."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            other = subprocess.Popen((sys.executable, "-c", SPIN))
            stack.callback(other.wait)
            stack.callback(other.kill)
        for index in range(times):
            started = time.monotonic()
            ran = subprocess.run(
                (sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal"), check=False
            )
            print(f"busy run {index + 1}: {time.monotonic() - started:.0f} s", flush=True)
            if ran.returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 3))
