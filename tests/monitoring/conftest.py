# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts and what they tell, read as Prometheus reads it."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.host.lab import connected, lab_variables

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
NODE, AMD = 9100, 5000


VARIABLES = lab_variables()
GPU_HOST, ROUTER = "gpu-001", "router-001"


def address(name):
    """Where a host is in the lab's own network."""
    return VARIABLES[name]["apiary_address"]


def reach(name):
    """A host as testinfra sees it, as root."""
    return connected(VARIABLES[name])


def get(url):
    """The text of an answer."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def metrics(name, port):
    """{metric: [(labels, value)]} that a host serves at a port."""
    found = {}
    for line in get(f"http://{address(name)}:{port}/metrics").splitlines():
        match = LINE.fullmatch(line)
        if match:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def await_true(condition, seconds=90):
    """Wait until a condition holds, and return what it gave; fail with its last answer."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except (urllib.error.URLError, OSError) as failure:
            found, said = None, failure
        else:
            said = found
        if found:
            return found
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s; last: {said}")
        time.sleep(0.5)


@pytest.fixture(scope="session")
def gpu_host():
    return reach(GPU_HOST)


@pytest.fixture(scope="session")
def router():
    return reach(ROUTER)
