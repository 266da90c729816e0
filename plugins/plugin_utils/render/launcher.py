# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The replica supervisor as files of a host: entry, package beside it, and its facts as JSON."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from ..documents import knowledge
from ..host.program import READERS, findings, packaged

LAUNCHER = "/usr/libexec/apiary/launch"
PACKAGE = "/usr/libexec/apiary/apiary_launch"
LIFE = "life.json"
_SOURCES = Path(__file__).parent / "host"
# -B: no byte code beside the sources, whoever runs it; a collection's sources carry no shebang.
_PROGRAM = """#!/usr/bin/env -S python3 -B
# Managed by Apiary; changes made here are overwritten.
import sys

from apiary_launch.{module} import main

sys.exit(main())
"""


@functools.cache
def supervisor_files() -> tuple[tuple[str, str, str], ...]:
    """Return (path, octal mode, text) of every file of the supervisor, the entry last.

    An entry that is there finds a package that is complete.
    """
    package = [
        (f"{PACKAGE}/{path.name}", "0644", packaged(path))
        for path in sorted((*_SOURCES.glob("*.py"), *READERS), key=lambda path: path.name)
    ]
    return (
        *package,
        (f"{PACKAGE}/finding.py", "0644", findings("CONTAINER", "REPLICA")),
        (f"{PACKAGE}/{LIFE}", "0644", life_document()),
        (LAUNCHER, "0755", program("main")),
    )


def program(module: str) -> str:
    """Return a program that lies beside the package and runs one module's main()."""
    return _PROGRAM.format(module=module)


def life_document() -> str:
    """Return what the supervisor knows of engines and limits, as it reads it on the host."""
    facts = {**knowledge("serving/life.yml"), "causes": knowledge("serving/causes.yml")}
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
