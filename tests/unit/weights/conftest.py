# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A hub, a store, and the module that goes between them."""

import os

import pytest
from ansible_collections.apiary.instinct.plugins.modules import weights_publish

from support.modules import run_module
from support.weights import REPOSITORY, hub_double


@pytest.fixture(autouse=True)
def _no_authorities(monkeypatch):
    """Trust no certificates: reading the system's takes longer than most of these tests."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
def hub():
    double = hub_double.Double()
    yield double
    double.close()


@pytest.fixture
def files():
    return hub_double.model()


@pytest.fixture
def commit(hub, files):
    return hub.add(REPOSITORY, files)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def run(hub, store, capsys):
    """Run the module against the store and the hub; retries don't wait."""

    def run(revision="", check_mode=False, **arguments):
        told = {
            "store": str(store),
            "repository": REPOSITORY,
            "revision": revision,
            "endpoint": hub.endpoint,
            "retries": 2,
            "retry_delay": 0,
            "timeout": 60,
        }
        return run_module(weights_publish, capsys, check_mode, **{**told, **arguments})

    return run


@pytest.fixture
def refused(run):
    """Run the module and return the code of the one finding it ends with."""

    def refused(*positional, **arguments):
        result = run(*positional, **arguments)
        assert result.get("failed"), result
        (finding,) = result["findings"]
        assert result["msg"] == (
            f"error: {finding['code']}: {finding['subject']}: {finding['message']}\n"
            f"  remedy: {finding['remedy']}"
        )
        return finding["code"]

    return refused
