# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine to be measured on loopback: the lab's simulator, faster than the real one."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SPEED = "20"


@contextlib.contextmanager
def engine(*arguments):
    """Yield the simulator's base URL."""
    places = [ROOT / "collections", ROOT / "tests/lab", ROOT / "tests"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine_simulator", "serve", "--speed", SPEED, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline().split()[-1])}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
