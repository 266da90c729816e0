#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draw docs/images/ again, from simulated and invented data: no host is asked.

pictures.py [NAME…]      without a name all of them

topology    an invented host and its plan, drawn as by `apiary topology --svg`
demo        what `make demo` prints, as a terminal shows it (runs it: two minutes, as root)
bench       a report of three layouts on the simulator of an engine (a minute)
fleet       a report of 128 invented hosts
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/lab")]


def topology(to: Path) -> None:
    """Draw an invented host, as its tools print it, with the demo's two replicas."""
    from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
    from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
        from_evidence,
    )

    from apiary.host.pictures import topology_svg
    from support.demo import demo_deployment
    from support.planned import build_plan
    from support.printers import machine as printers

    host = from_evidence(printers.bundle(printers.mesh()))
    asked = demo_deployment()
    plan = build_plan(asked, host, architecture_of(asked, "demo"))
    to.write_text(topology_svg(host, plan.placement), encoding="utf-8")


def demo(to: Path) -> None:
    """Draw a terminal in which the demo has run."""
    import demo_picture

    to.write_text(demo_picture.svg(demo_picture.recorded()), encoding="utf-8")


def bench(to: Path) -> None:
    """Photograph the top of a benchmark's report."""
    import bench_picture

    bench_picture.draw(to)


def fleet(to: Path) -> None:
    """Photograph a fleet's report, one host's panel open."""
    import fleet_picture

    fleet_picture.draw(to)


# File name -> what draws it.
PICTURES: dict[str, Callable[[Path], None]] = {
    "topology.svg": topology,
    "demo.svg": demo,
    "bench.png": bench,
    "fleet.png": fleet,
}


def main() -> None:
    """Draw the pictures that were named."""
    names = {file.split(".")[0]: file for file in PICTURES}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=IMAGES, help="directory (docs/images)")
    options = parser.parse_args()
    unknown = set(options.name) - names.keys()
    if unknown:
        parser.error(f"no picture is called {', '.join(sorted(unknown))}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.name or names:
        to = options.out / names[name]
        PICTURES[names[name]](to)
        print(f"{to} ({to.stat().st_size // 1024} KiB)", file=sys.stderr)


if __name__ == "__main__":
    main()
