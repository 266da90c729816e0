# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write wheels that no index has: the same bytes each time, so that their hashes can be pinned."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

WHEEL = "Wheel-Version: 1.0\nGenerator: apiary-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(
    outdir: Path, name: str, version: str, contents: Mapping[str, bytes] | None = None
) -> Path:
    """Write the wheel of a package with these files, by their paths in it; return its path."""
    about = f"{name}-{version}.dist-info"
    files = dict(contents or {})
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files |= {f"{about}/METADATA": metadata.encode(), f"{about}/WHEEL": WHEEL.encode()}
    record = "".join(f"{path},{_hash(data)},{len(data)}\n" for path, data in files.items())
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    outdir.mkdir(parents=True, exist_ok=True)
    wheel = outdir / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, data)
    return wheel


def pin(wheel: Path) -> str:
    """Return the requirement, with its hash, that only this wheel fulfils."""
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
