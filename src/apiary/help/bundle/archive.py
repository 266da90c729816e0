# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a support bundle: the same bytes for the same files, for this user alone, whole or not."""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

MODE = 0o600


def write_archive(out: Path, files: Mapping[str, Path]) -> int:
    """Write FILES, by their path in the archive, as a tar.gz in one step; return its size in bytes.

    Owner, times and order are the same whoever writes it. Raises FILE-UNWRITABLE.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=".apiary-bundle-")
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), MODE)
            with (
                gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path in sorted(files):
                    _add(archive, path, files[path])
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        os.replace(temporary, out)
    except OSError as failure:
        raise error(
            "FILE-UNWRITABLE", str(out), f"cannot be written: {failure.strerror or failure}"
        ) from failure
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
    return size


def _add(archive: tarfile.TarFile, path: str, source: Path) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.mtime = source.stat().st_size, MODE, 0
    with source.open("rb") as stream:
        archive.addfile(entry, stream)
