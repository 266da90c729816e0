# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A desk without hosts, and one with a lab: a host that serves, and one that is not known yet."""

from __future__ import annotations

import os

import pytest

from docs.chosen import changed, chosen
from docs.lab import Lab
from docs.pages import FIRST_HOST
from docs.reader import Desk, Reader
from docs.samples import deployment, lay_out
from loss.fleet import Fleet, stop

NAME = os.environ.get("APIARY_DOCS_LAB", "docs")
TOLD = pytest.StashKey[list[tuple[str, int, str, float]]]()


def pytest_configure(config):
    """Keep what was typed, for the summary."""
    config.stash[TOLD] = []


def pytest_generate_tests(metafunc):
    """Have `name` be the pages that a module is for: all of them, or what CI has time for."""
    if "name" in metafunc.fixturenames:
        pages = metafunc.module.PAGES
        every = metafunc.config.getoption("--all-pages")
        metafunc.parametrize("name", pages if every else chosen(pages, changed()))


@pytest.fixture
def desk(request, tmp_path):
    """A desk with the documents of a host and of benchmarks, and no host."""
    found = Desk(tmp_path, request.config.stash[TOLD])
    found.sit_down()
    lay_out(found.work)
    return found


@pytest.fixture(scope="session")
def reader(request, tmp_path_factory):
    """Somebody with a lab's bare hosts. The lab is made for them, and goes."""
    lab = Lab(Fleet(NAME), tmp_path_factory.mktemp("docs"))
    found = Reader(tmp_path_factory.mktemp("desk"), request.config.stash[TOLD], lab=lab)
    try:
        lab.up()
        found.sit_down()
        deployment(found.work)
        yield found
    finally:
        lab.unmirror()
        stop(NAME)


@pytest.fixture(scope="session")
def serving(reader):
    """The same, after the tutorial: gpu-001 and a router serve; gpu-002 is bare."""
    reader.follow(FIRST_HOST)
    return reader


def pytest_terminal_summary(terminalreporter, config):
    """Say what each page, and each of its commands, took."""
    told = config.stash.get(TOLD, [])
    if not told:
        return
    terminalreporter.section("pages followed")
    for page in dict.fromkeys(one[0] for one in told):
        taken = sum(seconds for name, _line, _command, seconds in told if name == page)
        terminalreporter.write_line(f"{taken:6.0f} s  {page}")
    for page, line, command, seconds in told:
        first = command.strip().splitlines()[0]
        terminalreporter.write_line(f"{seconds:8.1f} s  {page}:{line}  {first}")
