# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a tar archive of `/sys/class/kfd` as the dump that `head` prints of its files."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from typing import IO, BinaryIO, cast

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

ENDINGS = (".tar.gz", ".tgz", ".tar")
# 64 partitions with all their links are some 10 MiB in 10 000 files.
_MOST_BYTES, _MOST_FILES = 64 * 2**20, 100_000
_WANTED = re.compile(
    r"(?:^|/)(nodes/\d{1,4}/(?:(?:io_links|p2p_links|mem_banks)/\d{1,4}/)?(?:properties|gpu_id))$"
)


class _Bounded:
    """Reads no more of an archive than is real, whatever it is: contents, headers, their names."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, name: str) -> None:
        self._stream, self._name, self._left = stream, name, _MOST_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _unreadable(self._name, f"it has over {_MOST_BYTES >> 20} MiB")
        return data


def tree_text(name: str) -> str:
    """Return `==> nodes/… <==` and the content of each file of a KFD tree in an archive.

    Nothing is unpacked, links are not followed. Raises ApiaryError with FILE-UNREADABLE where the
    file is no whole tar archive or is larger than any KFD tree.
    """
    parts: list[str] = []
    try:
        with (
            _opened(name) as stream,
            tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream, name)), mode="r|") as archive,
        ):
            for count, member in enumerate(archive):
                if count > _MOST_FILES:
                    raise _unreadable(name, f"it has over {_MOST_FILES} files")
                match = _WANTED.search(member.name)
                content = archive.extractfile(member) if match and member.isreg() else None
                if match and content:
                    text = content.read().decode("utf-8", errors="replace")
                    parts.append(f"==> {match.group(1)} <==\n{text}")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as failure:
        raise _unreadable(name, str(failure)) from failure
    if not parts:
        raise _unreadable(name, "it has no file of a KFD tree, such as nodes/2/properties")
    return "\n".join([*parts, ""])


def _opened(name: str) -> BinaryIO | gzip.GzipFile:
    """Return what an archive unpacks to, read as it is asked for."""
    with open(name, "rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(name) if packed else open(name, "rb")


def _unreadable(name: str, reason: str) -> Exception:
    return error(
        "FILE-UNREADABLE",
        name,
        f"cannot be read as an archive of /sys/class/kfd/kfd/topology: {reason}",
        origin="`tar -czf kfd.tar.gz -C /sys/class/kfd/kfd topology` packs it",
    )
