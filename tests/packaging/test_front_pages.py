# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a newcomer reads first leads somewhere."""

import re

import pytest

from .conftest import ROOT


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_every_link_leads_to_a_file(name):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    lost = [one for one in links if "://" not in one and not (ROOT / one).exists()]
    assert not lost


def test_the_readme_opens_with_the_two_commands():
    block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [line.split()[:2] for line in block[1].splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


def test_make_has_every_target_that_the_pages_name():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        named = set(re.findall(r"`make ([a-z0-9-]+)", (ROOT / name).read_text()))
        assert named <= targets, name
