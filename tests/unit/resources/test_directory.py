# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory whose parent is somebody else's."""

import stat


def test_a_link_in_its_place_is_refused_and_what_it_names_stays(host):
    victim = host.root / "root-s-own"
    victim.mkdir(mode=0o700)
    (host.root / "data").symlink_to(victim)
    result = host.converge({"kind": "directory", "path": host.path("data"), "mode": "0755"})
    assert [finding["code"] for finding in result["findings"]] == ["HOST-FILE"]
    assert stat.S_IMODE(victim.stat().st_mode) == 0o700


def test_a_directory_gets_its_mode(host):
    made = {"kind": "directory", "path": host.path("a/b"), "mode": "0750"}
    assert host.converge(made)["changed"]
    assert stat.S_IMODE((host.root / "a/b").stat().st_mode) == 0o750
    assert not host.converge(made)["changed"]
