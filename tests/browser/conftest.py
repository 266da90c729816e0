# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One Chromium for all tests here; the distribution's package brings it where it is missing."""

import pytest
from browser.chromium import browser

from labkit.prerequisites import ensure_programs


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    ensure_programs({"chromium"})
    profile = tmp_path_factory.mktemp("chromium")
    with browser(profile) as opened:
        opened.profile = profile
        yield opened
