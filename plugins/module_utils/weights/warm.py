# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the models of this host once, so that they are in the page cache when an engine loads them.

Installed on hosts as /usr/libexec/apiary/weights-warm, run by weights-warm.service. A model that
does not fit what memory is free is left out: reading it would push out what was read before.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import sys

BLOCK = 16 * 2**20
CONFIGURATION = "/etc/apiary/weights.json"


def available_bytes(path: str = "/proc/meminfo") -> int:
    """Return the memory that can be taken without swapping."""
    with open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def files_of(directory: str) -> list[tuple[str, int]]:
    """Return a model's files with their sizes, the largest first."""
    found = []
    for folder, _folders, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                found.append((path, os.path.getsize(path)))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def read(path: str) -> int:
    """Read one file and forget it; return its bytes."""
    buffer = bytearray(BLOCK)
    total = 0
    with open(path, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(buffer)
            if not count:
                return total
            total += count


def warm(directories: list[str], budget: int, parallel: int) -> int:
    """Read what fits the budget, in the given order; say what was left out. Return an exit code."""
    problems = 0
    for directory in directories:
        found = files_of(directory)
        size = sum(each for _path, each in found)
        told = f"{directory}: {size / 2**30:.1f} GiB"
        if not found:
            sys.stderr.write(f"{directory}: nothing there\n")
            problems = 1
        elif size > budget:
            sys.stderr.write(f"{told} left out, {budget / 2**30:.1f} GiB of memory to use\n")
        else:
            with concurrent.futures.ThreadPoolExecutor(max(1, parallel)) as pool:
                done = sum(pool.map(read, [path for path, _size in found]))
            budget -= done
            sys.stderr.write(f"{told} read\n")
    return problems


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weights-warm", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("directories", nargs="*", help="default: the models of this host")
    parser.add_argument("--memory-percent", type=int, help="of what is available")
    parser.add_argument("--parallel", type=int, default=8, help="files read at once")
    arguments = parser.parse_args(argv)
    try:
        with open(CONFIGURATION, encoding="utf-8") as stream:
            settings = json.load(stream)
    except FileNotFoundError:
        settings = {}
    percent = arguments.memory_percent or settings.get("warm_up_memory_percent", 50)
    directories = arguments.directories or settings.get("models", [])
    return warm(directories, available_bytes() * percent // 100, arguments.parallel)


if __name__ == "__main__":
    raise SystemExit(main())
