#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the double as `amdgpu-exporter` into a signed apt repository with AMD's layout.

    build.py OUTDIR

OUTDIR/apt/VERSION is the repository, OUTDIR/key.gpg its key, OUTDIR/facts.json has the key's
fingerprint and the suite; OUTDIR.tar has all of it. What the same code has made stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

# What the lab's own directory holds is importable only from here on (E402).
from labkit.console import guarded, step  # noqa: E402
from labkit.prerequisites import ensure_programs  # noqa: E402
from labkit.state import held  # noqa: E402
from repository import debs  # noqa: E402
from repository.signing import Signer  # noqa: E402
from repository.stub import Stub  # noqa: E402

SUITE = "noble"
VERSIONS = ("1.5.4", "1.5.2")
UNIT = """[Unit]
Description={description}
{order}
[Service]
Restart=on-failure
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""
# Waits, and does nothing else.
AGENT = "#!/bin/sh\n# A double of gpuagent: it reads no GPU.\nexec sleep infinity\n"


def package(version: str) -> Stub:
    """Return the package: AMD's paths and units, nothing of AMD's in them."""
    exporter = UNIT.format(
        description="A double of AMD's metrics exporter",
        order="After=gpuagent.service\nRequires=gpuagent.service\n",
        command="/usr/local/bin/amd-metrics-exporter",
    )
    agent = UNIT.format(
        description="A double of AMD's agent", order="", command="/usr/local/bin/gpuagent"
    )
    return Stub(
        "amdgpu-exporter",
        version,
        "python3",
        {
            "/usr/local/bin/amd-metrics-exporter": (HERE / "exporter_double.py").read_text(),
            "/usr/local/bin/gpuagent": AGENT,
            "/usr/lib/systemd/system/amd-metrics-exporter.service": exporter,
            "/usr/lib/systemd/system/gpuagent.service": agent,
        },
    )


def build(out: Path) -> None:
    """Make the repositories in a scratch directory, then put it in its place."""
    with held(out.with_name(out.name + ".lock")):
        _build(out)


def _build(out: Path) -> None:
    hashed = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        hashed.update(path.read_bytes())
    made, told = hashed.hexdigest(), out / "facts.json"
    if told.exists() and json.loads(told.read_text())["made_by"] == made:
        return
    ensure_programs({"apt-ftparchive", "gpg"})
    scratch = out.with_name(out.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with step("Making a repository of the exporter's double"), Signer("Lab exporter") as signer:
        for version in VERSIONS:
            tree = scratch / "apt" / version
            debs.publish(tree, SUITE, "repo.radeon.com", [package(version)], signer)
        signer.export(scratch / "key.gpg")
        facts = {"fingerprint": signer.fingerprint, "made_by": made, "suite": SUITE}
    (scratch / "facts.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    shutil.make_archive(str(out), "tar", scratch)
    shutil.rmtree(out, ignore_errors=True)
    scratch.rename(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; every refusal is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    arguments = parser.parse_args(argv)
    return guarded(lambda: build(arguments.outdir.resolve()))


if __name__ == "__main__":
    sys.exit(main())
