# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that an inventory is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def inventory_files(source: str) -> Iterator[Path]:
    """Yield the files that Ansible reads of a source, with the variables beside a file.

    Hidden ones, as of a clone's .git, are none; a list of hosts has no files.
    """
    top = Path(source)
    if "," in source or not top.exists():
        return
    folders = [top]
    if top.is_file():
        yield top
        folders = [top.parent / "group_vars", top.parent / "host_vars"]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden and path.suffix != ".pyc":
                yield path
