# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages that take minutes each, to the letter: engines are measured, hosts made for a page alone.

They follow one another on one lab, so they run in order.
"""

import pytest

from docs.pages import LONG, how_to


@pytest.mark.parametrize("page", LONG)
def test_a_long_page_comes_true(serving, page):
    serving.follow(how_to(page))
