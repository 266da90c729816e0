# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet that is watched: started once, under load, for all tests."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from models import write_model

from labkit.prerequisites import ensure_programs

LAB = Path(__file__).parents[1] / "lab"
sys.path.insert(0, str(Path(__file__).parent))

from watched import HOSTS, MODEL, Fleet  # noqa: E402 - found by the line above


def _builder():
    """Return the program that lays out vLLM's double."""
    path = LAB / "vllm_double/build.py"
    spec = importlib.util.spec_from_file_location("vllm_double_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fleet():
    """Start engines, exporters, a router and Prometheus, and send requests to the end."""
    ensure_programs({"haproxy"})
    # The path of a socket has at most 107 letters.
    directory = Path(tempfile.mkdtemp(prefix="watched-"))
    write_model(directory / "models", MODEL)
    built = cache(lambda version: _builder().build(version, directory / "vllm" / version))
    fleet = Fleet(directory, built, directory / "models")
    try:
        for name, (address, version, faults) in HOSTS.items():
            fleet.host(name, address, version, faults)
        fleet.await_engines()
        asyncio.run(fleet.router())
        fleet.plan = fleet.watch()
        with fleet.load():
            yield fleet
    finally:
        fleet.close()
        shutil.rmtree(directory)
