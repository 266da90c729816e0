# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab with one host that serves, and one that is not in the inventory yet."""

from __future__ import annotations

import os

import pytest

from docs.lab import Lab
from docs.reader import Reader
from loss.fleet import Fleet, stop

NAME = os.environ.get("APIARY_DOCS_LAB", "docs")
TOLD = pytest.StashKey[list[tuple[str, int, str, float]]]()


@pytest.fixture(scope="session")
def reader(request, tmp_path_factory):
    """Somebody with gpu-001 and a router; gpu-002 is bare. The lab is made for them, and goes."""
    lab = Lab(Fleet(NAME), tmp_path_factory.mktemp("docs"))
    found = Reader(lab, tmp_path_factory.mktemp("desk"))
    request.config.stash[TOLD] = found.told
    try:
        lab.up()
        found.sit_down()
        found.know("gpu-001", "router-001")
        lab.inventory(found.work, ("gpu-001",))
        done = found.run("ansible-playbook -i inventory/mine playbooks/site.yml")
        assert done.returncode == 0, done.stdout
        yield found
    finally:
        stop(NAME)


def pytest_terminal_summary(terminalreporter, config):
    """Say what each command of a page took."""
    told = config.stash.get(TOLD, [])
    if told:
        terminalreporter.section("pages followed")
        for page, line, command, seconds in told:
            terminalreporter.write_line(
                f"{seconds:6.0f} s  {page}:{line}  {command.splitlines()[0]}"
            )
