# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's tarball: as ansible-galaxy builds it, less what differs from build to build.

ansible-galaxy lists files in the order in which the disk has them and notes when they were
written. Here they are sorted and all as old as the commit; the checksums are taken again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

MANIFEST, FILES = "MANIFEST.json", "FILES.json"


def command(python_bin: Path, out: Path) -> list[str | Path]:
    """Return the command that builds the collection of the current directory."""
    return [python_bin / "ansible-galaxy", "collection", "build", "--output-path", out]


def normalise(built: Path, to: Path, epoch: int) -> dict[str, str]:
    """Write the tarball so that only its content decides its bytes; return the files' SHA-256."""
    with tarfile.open(built) as archive:
        members = {member.name: member for member in archive}
        content = {
            name: archive.extractfile(member).read()  # type: ignore[union-attr]  # each is a file
            for name, member in members.items()
            if member.isfile()
        }
    listed = json.loads(content[FILES])
    listed["files"].sort(key=lambda entry: (entry["name"] != ".", entry["name"]))
    content[FILES] = _json(listed)
    manifest = json.loads(content[MANIFEST])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(content[FILES]).hexdigest()
    content[MANIFEST] = _json(manifest)
    order = [MANIFEST, FILES, *sorted(members.keys() - {MANIFEST, FILES})]
    packed = io.BytesIO()
    # A gzip header has a file name and a time, too.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in order:
            archive.addfile(*_member(members[name], content.get(name), epoch))
    to.write_bytes(packed.getvalue())
    return {
        entry["name"]: entry["chksum_sha256"]
        for entry in listed["files"]
        if entry["ftype"] == "file"
    }


def _member(
    old: tarfile.TarInfo, data: bytes | None, epoch: int
) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    """Return a member with the content's length and nothing of the machine that packed it."""
    new = tarfile.TarInfo(old.name)
    new.type, new.linkname, new.mtime = old.type, old.linkname, epoch
    new.mode = 0o755 if old.isdir() or old.mode & 0o100 else 0o644
    if data is None:
        return new, None
    new.size = len(data)
    return new, io.BytesIO(data)


def _json(document: Any) -> bytes:
    """Return a manifest as ansible-galaxy writes it."""
    return json.dumps(document, indent=True).encode()
