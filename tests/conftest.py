# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all tests share: golden files."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# Programs that tests start are compiled once, not at each start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests are many and live on: a twentieth of the time went into looking for garbage.
gc.set_threshold(50_000, 20, 20)

# What is slow on a loaded machine is not wrong.
settings.register_profile("apiary", deadline=None, max_examples=20)
settings.register_profile("night", deadline=None, max_examples=300)
settings.load_profile("apiary")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
    parser.addoption("--all-pages", action="store_true", help="follow every page of tests/docs")


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    """Have tables as wide as without a terminal: pytest's workers are told the width of ours."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def golden(request):
    """Compare a text with a golden file; with --update-golden write it instead."""

    def compare(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run pytest --update-golden and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare
