# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that the README has, in its order."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def commands() -> list[str]:
    """Return every command of the README's shell blocks, comments and line ends cut off."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line.split(" # ")[0].split("   #")[0].strip() for line in "".join(blocks).splitlines()]
    return [line for line in lines if line]


def packages() -> list[str]:
    """Return the packages that the README has the distribution give."""
    named = re.search(r"`apt-get install ([a-z0-9 +.-]+)`", README.read_text())
    assert named, "the README no longer says which packages a machine needs"
    return named[1].split()
