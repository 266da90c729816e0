# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests with a real HAProxy share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from labkit.prerequisites import ensure_programs


def pytest_collection_modifyitems(items):
    """Take a connection of a health check that a stand-in accepted while it ended for no fault."""
    ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(ignored)


@pytest.fixture(scope="session", autouse=True)
def _haproxy():
    """Have the distribution's HAProxy, and Lua for its script, as the lab gets what it needs."""
    ensure_programs({"haproxy", "lua5.3"})


@pytest.fixture
def place():
    """Give a directory with a short name: the path of a socket has at most 107 letters."""
    directory = Path(tempfile.mkdtemp(prefix="router-"))
    yield directory
    shutil.rmtree(directory)
