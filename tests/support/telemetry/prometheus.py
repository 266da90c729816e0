# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The distribution's Prometheus and its tools, unpacked beside the lab: nothing is installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from labkit.state import held

PACKAGES = {
    "amtool": "prometheus-alertmanager",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "promtool": "prometheus",
}
STORE = Path(__file__).parents[3] / ".lab/prometheus"


@functools.cache
def program(name: str) -> str:
    """Return the path of a program; fetch its package where the machine lacks it.

    Raises RuntimeError that says what to install.
    """
    found = shutil.which(name)
    if found:
        return found
    path = STORE / "usr/bin" / name
    with held(STORE / ".lock"):  # workers of pytest-xdist fetch it once
        if not path.exists():
            _fetch(PACKAGES[name])
    return str(path)


def _fetch(package: str) -> None:
    downloads = STORE / "packages"
    downloads.mkdir(exist_ok=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise RuntimeError(f"install {package} as this machine does it, and run this again")
    said = _run("apt-get", "download", package, at=downloads)
    if said and os.geteuid() == 0:  # a fresh machine has no lists
        _run("apt-get", "update", "-qq", at=downloads)
        said = _run("apt-get", "download", package, at=downloads)
    archives = sorted(downloads.glob(f"{package}_*.deb"))
    if not archives:
        raise RuntimeError(f"install {package} (apt-get install {package}): {said}")
    said = _run("dpkg-deb", "--extract", str(archives[-1]), str(STORE), at=downloads)
    if said:
        raise RuntimeError(f"{archives[-1]} cannot be unpacked: {said}")


def _run(*argv: str, at: Path) -> str:
    """Return what a command said of its failure; empty where it had none."""
    done = subprocess.run(argv, cwd=at, capture_output=True, text=True, check=False)
    return (done.stderr or "failed").strip() if done.returncode else ""


def check(name: str, *arguments: str, at: Path) -> tuple[bool, str]:
    """Run promtool or amtool; return whether it was content, and all that it said."""
    done = subprocess.run(
        [program(name), *arguments],
        cwd=at,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr
