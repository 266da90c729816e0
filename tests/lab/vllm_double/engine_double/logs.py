# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Log lines in vLLM's shape, and the refusal that ends the process as vLLM's exceptions do."""

from __future__ import annotations

import os
import time

process = "APIServer"


class StartupError(Exception):
    """What vLLM would raise: ``kind`` is its exception's name; the process exits with 1."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def log(level: str, place: str, message: str) -> None:
    """Print one line as vLLM's logger would, flushed at once so that the journal has it."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    for line in message.splitlines() or [""]:
        print(f"({process} pid={os.getpid()}) {level} {stamp} [{place}] {line}", flush=True)


def info(place: str, message: str) -> None:
    log("INFO", place, message)


def warning(place: str, message: str) -> None:
    log("WARNING", place, message)


def error(place: str, message: str) -> None:
    log("ERROR", place, message)


def refused(place: str, refusal: StartupError) -> None:
    """Print a refusal as the last line of vLLM's traceback."""
    error(place, f"{refusal.kind}: {refusal}")
