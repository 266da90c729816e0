# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write sysfs-like files and links below a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class Tree:
    """A directory that stands for /sys; every path is relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, path: str) -> None:
        """Make an empty directory."""
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, value: object) -> None:
        """Write one attribute, with the line feed that sysfs adds."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(value if isinstance(value, bytes) else f"{value}\n".encode())

    def write_all(self, directory: str, values: Mapping[str, object]) -> None:
        """Write the attributes of one directory."""
        for name, value in values.items():
            self.write(f"{directory}/{name}", value)

    def properties(self, directory: str, values: Mapping[str, int]) -> None:
        """Write KFD's ``properties`` file: one ``name value`` a line."""
        lines = [f"{name} {value}" for name, value in values.items()]
        self.write(f"{directory}/properties", "\n".join(lines))

    def link(self, path: str, target: str) -> None:
        """Link one sysfs path to another, relatively, as the kernel does."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, os.path.dirname(path)))
