# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a stub package is, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stub:
    """One package: VERSION-RELEASE, dependencies as Debian writes them, files, scripts, links.

    Files below bin/ and sbin/, hooks and everything that begins with ``#!`` can be executed.
    """

    name: str
    version: str
    depends: str = ""
    files: dict[str, bytes | str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    epoch: str = ""


def executable(content: bytes | str) -> bool:
    """Say whether a file is a script."""
    return content[:2] in ("#!", b"#!")
