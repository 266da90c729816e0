# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the double of one vLLM version as a wheel of the name vllm, with the pins that name it.

    wheel.py VERSION OUTDIR

writes OUTDIR/vllm-VERSION-py3-none-any.whl and OUTDIR/vllm-VERSION.txt, the same bytes each time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from build import build

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from labkit.wheels import pin, write_wheel

PROGRAM = (
    "#!python\nimport sys\nfrom engine_double.main import main\nsys.exit(main(sys.argv[1:]))\n"
)


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
    files[f"vllm-{version}.data/scripts/vllm"] = PROGRAM.encode()
    wheel = write_wheel(outdir, "vllm", version, files)
    (outdir / f"vllm-{version}.txt").write_text(pin(wheel), encoding="utf-8")
    return wheel


if __name__ == "__main__":
    print(pack(sys.argv[1], Path(sys.argv[2])))
