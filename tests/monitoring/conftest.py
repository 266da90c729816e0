# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts and what they tell, read as Prometheus reads it."""

from __future__ import annotations

import base64
import re
import ssl
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
WEB = Path(VARIABLES[GPU_HOST]["apiary_artifacts"]) / "fleet/web"


def address(name):
    """Where a host is in the lab's own network."""
    return VARIABLES[name]["apiary_address"]


def reach(name):
    """A host as testinfra sees it, as root."""
    return connected(VARIABLES[name])


def get(url, user="monitoring"):
    """The text of an answer of a program that speaks TLS and wants a password, or of another."""
    request = urllib.request.Request(url)
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(WEB / "authority.pem"))
        word = (WEB / f"{user}.password").read_text()
        shown = base64.b64encode(f"apiary:{word}".encode()).decode()
        request.add_header("Authorization", f"Basic {shown}")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return answer.read().decode()


def refusal(url):
    """The status of an answer to who has no password."""
    context = ssl.create_default_context(cafile=str(WEB / "authority.pem"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10, context=context)
    refused.value.close()
    return refused.value.code


def metrics(name, port):
    """{metric: [(labels, value)]} that a host serves at a port."""
    found = {}
    scheme = "https" if port == NODE else "http"
    for line in get(f"{scheme}://{address(name)}:{port}/metrics", "node").splitlines():
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
