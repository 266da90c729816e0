# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages that need no host, to the letter: some seconds each."""

from docs.pages import ALONE, how_to

PAGES = ALONE


def test_a_page_without_hosts_comes_true(desk, name):
    desk.follow(how_to(name))
