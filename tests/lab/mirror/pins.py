# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pin the real vLLM's packages again: requirements/e2e.in → requirements/e2e.txt.

    pins.py [--torch-cpu-wheel FILE]

uv resolves against an index that has torch only with CUDA. The packages that build needs are left
out, and torch gets the CPU wheel's hash alone: with both kinds of hash pip would prefer the index's
CUDA build to a CPU wheel on disk. Without FILE the hashes that e2e.txt has stay.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
SOURCE, OVERRIDES, PINS = (REQUIREMENTS / f"e2e.{end}" for end in ("in", "overrides", "txt"))
TORCH = re.compile(r"(?m)^(torch==\S+ \\\n)((?:    --hash=.*\n)+)")


def cpu_hashes(wheel: Path | None) -> list[str]:
    """Return the hashes of torch's CPU wheels: of ``wheel``, or those already pinned."""
    if wheel is not None:
        return [hashlib.sha256(wheel.read_bytes()).hexdigest()]
    pinned = TORCH.search(PINS.read_text(encoding="utf-8")) if PINS.is_file() else None
    if pinned is None:
        raise SystemExit("no hash of torch's CPU wheel is pinned yet: pass --torch-cpu-wheel FILE")
    return re.findall(r"sha256:(\w+)", pinned[2])


def with_hashes(pins: str, hashes: list[str]) -> str:
    """Return the pins with torch's hashes replaced."""
    lines = " \\\n".join(f"    --hash=sha256:{value}" for value in hashes)
    text, count = TORCH.subn(lambda match: f"{match[1]}{lines}\n", pins)
    if count != 1:
        raise SystemExit("torch is not pinned exactly once")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch-cpu-wheel", type=Path)
    hashes = cpu_hashes(parser.parse_args().torch_cpu_wheel)
    command = ["uv", "pip", "compile", "--quiet", "--no-config", "--python-version", "3.11"]
    command += ["--python-platform", "x86_64-manylinux_2_28", "--generate-hashes", "--no-annotate"]
    command += ["--custom-compile-command", "tests/lab/mirror/pins.py"]
    command += ["--overrides", str(OVERRIDES), str(SOURCE)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    PINS.write_text(with_hashes(done.stdout, hashes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
