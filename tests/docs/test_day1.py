# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tutorial, and the pages for a host that serves, to the letter.

They follow one another on one lab, so they run in order.
"""

from docs.pages import DEMO, SERVING, how_to

PAGES = SERVING


def test_the_demo_comes_true_and_leaves_nothing(reader):
    reader.follow(DEMO)
    assert not list((reader.work / ".lab").glob("*/hosts.json"))


def test_own_hosts_serve_in_the_end(serving):
    state = serving.run(
        "ansible gpu_hosts -i inventory/mine -b -m command"
        " -a 'systemctl list-units --failed apiary-*'"
    )
    assert "0 loaded units listed" in state.stdout


def test_a_page_for_a_host_that_serves_comes_true(serving, name):
    serving.follow(how_to(name))
