# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the double of one vLLM version as a wheel of the name vllm, with the pins that name it.

    wheel.py VERSION OUTDIR

writes OUTDIR/vllm-VERSION-py3-none-any.whl and OUTDIR/vllm-VERSION.txt, the same bytes each time.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import tempfile
import zipfile
from pathlib import Path

from build import build

PROGRAM = (
    "#!python\nimport sys\nfrom engine_double.main import main\nsys.exit(main(sys.argv[1:]))\n"
)
WHEEL = "Wheel-Version: 1.0\nGenerator: apiary-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def pack(version: str, outdir: Path) -> Path:
    """Write the wheel and its pins; return the wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        build(version, Path(scratch))
        library = Path(scratch) / "lib/engine_double"
        files = {
            f"engine_double/{path.name}": path.read_bytes()
            for path in sorted(library.iterdir())
            if path.is_file()
        }
    metadata = f"vllm-{version}.dist-info"
    files[f"vllm-{version}.data/scripts/vllm"] = PROGRAM.encode()
    files[f"{metadata}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode()
    )
    files[f"{metadata}/WHEEL"] = WHEEL.encode()
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in files.items())
    files[f"{metadata}/RECORD"] = f"{record}{metadata}/RECORD,,\n".encode()
    outdir.mkdir(parents=True, exist_ok=True)
    wheel = outdir / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, data)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pins = f"vllm=={version} \\\n    --hash=sha256:{digest}\n"
    (outdir / f"vllm-{version}.txt").write_text(pins, encoding="utf-8")
    return wheel


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


if __name__ == "__main__":
    print(pack(sys.argv[1], Path(sys.argv[2])))
