#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/images/fleet.png: the report of a fleet that was never there, a host's panel open.

fleet_picture.py [REPORT.html]      photograph this report instead
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/lab")]

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report import (  # noqa: E402
    fleet_report,
)
from browser.chromium import browser  # noqa: E402

from apiary.fleet_report_page import fleet_page  # noqa: E402
from apiary.pictures import topology_svg  # noqa: E402
from support.acceptances import LATER, inputs, rollout_of  # noqa: E402
from support.topologies import mi325x  # noqa: E402

HOSTS = 128
WIDTH, HEIGHT = 1560, 1080


def made() -> str:
    """Return the page of a fleet with one of each trouble."""
    given = list(inputs(HOSTS))
    bad = frozenset(one.host for one in given if one.quarantine)
    run = rollout_of([one.host for one in given], bad)
    report = fleet_report(given, LATER, run)
    picture = topology_svg(mi325x())
    return fleet_page(report, {one.host: picture for one in report.hosts if one.state != "ok"})


def main() -> None:
    """Make the report and photograph its top beside the first failing host."""
    given = sys.argv[1:]
    text = Path(given[0]).read_text(encoding="utf-8") if given else made()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.html"
        file.write_text(text, encoding="utf-8")
        profile = Path(folder) / "profile"
        profile.mkdir()
        with browser(profile) as chromium:
            chromium.view(WIDTH, HEIGHT)
            chromium.open(file)
            chromium.evaluate("document.querySelector('button.host.failing')?.click()")
            chromium.settle()
            chromium.screenshot(ROOT / "docs/images/fleet.png", (0, 0, WIDTH, HEIGHT))


if __name__ == "__main__":
    main()
