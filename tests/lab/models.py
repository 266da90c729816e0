# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write model directories for the lab: config.json alone, which is all the double reads.

    models.py OUTDIR [ORG/NAME …]

writes OUTDIR/ORG/NAME/config.json from Apiary's knowledge, for every known model when none is
named. OUTDIR is bind-mounted at /srv/models on a simulated host.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge


def known_models() -> dict[str, dict[str, Any]]:
    """Return the hub config of every model that Apiary knows, by ORG/NAME."""
    files = [
        knowledge(f"models/{path.name}") for path in sorted((KNOWLEDGE / "models").glob("*--*.yml"))
    ]
    return {data["name"]: data["config"] for data in files}


def write_model(outdir: Path, name: str) -> Path:
    """Write one model's directory and return it; raise KeyError for a model Apiary lacks."""
    config = known_models()[name]
    target = outdir / name
    target.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (target / "config.json").write_text(text, encoding="utf-8")
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("names", nargs="*", metavar="ORG/NAME")
    arguments = parser.parse_args()
    known = known_models()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        print(f"unknown model {unknown[0]}; known: {', '.join(known)}", file=sys.stderr)
        return 1
    for name in arguments.names or known:
        print(write_model(arguments.outdir, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
