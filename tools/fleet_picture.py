# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/images/fleet.png: the report of a fleet that was never there, a host's panel open."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import (
    fleet_report,
)
from browser.chromium import browser

from apiary.fleet.report.page import fleet_page
from support.acceptances import LATER, inputs, rollout_of

HOSTS = 128
WIDTH, HEIGHT = 1560, 1080


def made() -> str:
    """Return the page of a fleet with one of each trouble."""
    given = list(inputs(HOSTS))
    bad = frozenset(one.host for one in given if one.quarantine)
    run = rollout_of([one.host for one in given], bad)
    report = fleet_report(given, LATER, run)
    return fleet_page(report)


def draw(to: Path) -> None:
    """Make the report and photograph its top beside the first failing host."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.html"
        file.write_text(made(), encoding="utf-8")
        profile = Path(folder) / "profile"
        profile.mkdir()
        with browser(profile) as chromium:
            chromium.view(WIDTH, HEIGHT)
            chromium.open(file)
            chromium.evaluate("document.querySelector('button.host.failing')?.click()")
            chromium.settle()
            chromium.screenshot(to, (0, 0, WIDTH, HEIGHT))
