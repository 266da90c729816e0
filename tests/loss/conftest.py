# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts of two replicas behind two routers, made by the site playbook; a table at the end."""

from __future__ import annotations

import os

import pytest

from loss.fleet import ROOT, Fleet, start, stop
from loss.load import Report

ROWS = pytest.StashKey[list[tuple[str, ...]]]()
HEAD = (
    "under constant load",
    "requests",
    "ok",
    "refused",
    "error",
    "cut",
    "lost",
    "reconnected",
    "why",
)
NAME = os.environ.get("APIARY_LOSS_LAB", "loss")
VARIABLES = (f"@{ROOT}/tests/loss/variables.yml",)


@pytest.fixture(scope="session")
def fleet():
    """The lab, taken down afterwards unless it was up before."""
    found = Fleet(NAME, VARIABLES)
    was_up = (found.directory / "hosts.json").exists()
    try:
        start(NAME, hosts=2, routers=2)
        found.playbook("site", "--tags", "replicas,router", "-e", "replicas_restart=true")
        found.await_whole()
        yield found
    finally:
        if not was_up:
            stop(NAME)


@pytest.fixture
def whole(fleet):
    """The lab with every replica in use, before the test and after it."""
    fleet.await_whole()
    yield fleet
    fleet.await_whole()


@pytest.fixture
def add_row(request):
    """Add a line about a load to the table at the end of the run."""
    rows = request.config.stash.setdefault(ROWS, [])

    def add(what: str, report: Report) -> Report:
        counts = report.counts()
        again = sum(one.connects > 1 for one in report.outcomes)
        why = sorted({one.reason.split(".")[0][:60] for one in report.failed})
        numbers = [len(report.outcomes), *counts.values(), again]
        rows.append((what, *map(str, numbers), "; ".join(why)))
        return report

    return add


def pytest_terminal_summary(terminalreporter, config):
    """Print the counts of each scenario."""
    rows = config.stash.get(ROWS, [])
    if rows:
        widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
        terminalreporter.section("requests lost")
        for row in [HEAD, *rows]:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line("  ".join(cells).rstrip())
