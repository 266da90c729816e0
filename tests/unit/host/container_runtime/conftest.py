# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated hardware, generated once: its evidence never changes."""

import pytest

from support.host.container import hardware


@pytest.fixture(scope="package")
def gpus(tmp_path_factory):
    return hardware(tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="package")
def no_gpus(tmp_path_factory):
    return hardware(tmp_path_factory.mktemp("nodriver"), "nodriver")
