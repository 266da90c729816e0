# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that a power cut leaves as they were or as they are to be: whole, with their names."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from typing import Callable


def write_durably(
    path: str,
    text: str,
    mode: int = 0o644,
    prepare: Callable[[str], object] | None = None,
    exclusive: bool = False,
) -> None:
    """Replace a file in one step, and have the disk keep it before this returns.

    Every writer has a temporary file of its own. ``prepare`` is called with its path, for an owner
    or a label; with ``exclusive`` a file that is there stays, and FileExistsError is raised.
    """
    directory, name = os.path.split(os.path.abspath(path))
    prefix = f".apiary-{name}."
    _remove_leftovers(os.path.join(directory, prefix))
    handle, temporary = tempfile.mkstemp(prefix=prefix, dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
            with contextlib.suppress(OSError):
                fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            if prepare:
                prepare(temporary)
            os.fsync(stream.fileno())
            if exclusive:
                # A link, unlike a rename, fails where another was faster.
                os.link(temporary, path)
                os.unlink(temporary)
            else:
                os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(directory)


def sync_directory(path: str) -> None:
    """Have the disk keep which names a directory has."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(prefix: str) -> None:
    """Remove what writers left that were killed: of one that lives the file is locked or empty."""
    for path in glob.glob(glob.escape(prefix) + "*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_size:
                    os.unlink(path)
            finally:
                os.close(handle)
