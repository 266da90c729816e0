# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's versions: as directories, inside package versions, by stream."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import types


@pytest.mark.parametrize(
    ("text", "directory", "token"),
    [
        ("6.4.0", "6.4", "60400"),
        ("6.4.3", "6.4.3", "60403"),
        ("7.2", "7.2", "70200"),
        ("7.2.4", "7.2.4", "70204"),
        ("30.10.2", "30.10.2", "30100200"),
        ("30.30.4", "30.30.4", "30300400"),
        ("31.50.0", "31.50", "31500000"),
    ],
)
def test_a_version_is_spelled_as_amd_does(text, directory, token):
    version = types.parse(text)
    assert (version.directory, version.token) == (directory, token)


@pytest.mark.parametrize("text", ["", "latest", "7", "7.2.4.1", "v7.2", "7.2.4-1", "7..2"])
def test_what_is_no_version_is_none(text):
    assert types.parse(text) is None


@pytest.mark.parametrize(
    ("text", "current"),
    [("6.4.3", False), ("7.2.4", False), ("7.9", True), ("7.14.1", True), ("10.0.0", True)],
)
def test_the_stream_follows_from_the_version(text, current):
    assert types.is_current_stream(types.parse(text)) is current


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("1:6.16.13.30300400-2341068.24.04", ("6.16.13", "2341068.24.04")),
        ("1:6.12.12.60403-2194681.22.04", ("6.12.12", "2194681.22.04")),
        ("7.1.3.31500000-2390945.el9", ("7.1.3", "2390945.el9")),
        ("6.8.0-101.101", None),
        ("5.7.1-3build1", None),
        ("10.0.0-4", None),
    ],
)
def test_the_module_follows_from_the_package(package, module):
    assert types.module_of(package) == module


@pytest.mark.parametrize(
    ("version", "pattern", "right"),
    [
        ("1:6.16.13.30300400-2341068.24.04", "1:6.16.13.30300400-*", True),
        ("1:6.16.13.30300400-2341068.el9", "6.16.13.30300400-*", True),
        ("1:6.16.13.30300300-2327507.24.04", "1:6.16.13.30300400-*", False),
        ("30.30.4.0.30300400-2341068.24.04", "*.30300400-*", True),
        ("1.0.0.70204-93~24.04", "*.70204-*", True),
        ("5.7.1-3", "*.70204-*", False),
        ("10.0.0-4", "10.0.0-*", True),
        ("10.0.1-1", "10.0.0-*", False),
        ("anything", None, True),
    ],
)
def test_a_pattern_takes_its_versions_only(version, pattern, right):
    assert types.matches(version, pattern) is right


def test_kernels_are_ordered_by_number_not_by_text():
    releases = ["6.8.0-9-generic", "6.8.0-101-generic", "6.11.0-1-generic"]
    assert sorted(releases, key=types.kernel_order) == releases
