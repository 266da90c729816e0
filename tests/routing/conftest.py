# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's routers, asked as clients ask them, and told as operators tell them."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from pathlib import Path

import pytest

from support.host.lab import connected, lab_variables

ROOT = Path(__file__).parents[2]


VARIABLES = lab_variables()
ROUTERS = sorted(name for name in VARIABLES if name.startswith("router-"))


def reach(name):
    """A host as testinfra sees it, as root."""
    return connected(VARIABLES[name])


@pytest.fixture(scope="session")
def routers():
    """Both routers, by name."""
    return {name: reach(name) for name in ROUTERS}


def ask(router, port, body=None, path=None, headers=None, tls=False, seconds=10):
    """Send one request to a router, by name or address: (status, answer, headers)."""
    address = VARIABLES[router]["apiary_address"] if router in VARIABLES else router
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        if body is None:
            connection.request("GET", path or "/v1/models", headers=headers or {})
        else:
            told = {"Content-Type": "application/json", **(headers or {})}
            connection.request("POST", path or "/v1/completions", json.dumps(body), told)
        answer = connection.getresponse()
        text = answer.read()
        kind = answer.getheader("Content-Type", "")
        return answer.status, json.loads(text) if "json" in kind else text, answer.headers
    finally:
        connection.close()


def playbook(name, *options, check=True):
    """Run a playbook as an operator would; return the finished process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        ["ansible-playbook", "-i", "inventory/lab", f"playbooks/{name}.yml", *options],
        cwd=ROOT,
        env={**clean, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
