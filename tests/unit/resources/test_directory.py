# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory whose parent is somebody else's."""

import stat


def test_a_link_in_its_place_is_refused_and_what_it_names_stays(host):
    victim = host.root / "root-s-own"
    victim.mkdir(mode=0o700)
    shared = host.root / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "data").symlink_to(victim)
    # Nor where root's own link leads to one that somebody else may have put there.
    (host.root / "data").symlink_to("shared/data/")
    for name in ("shared/data", "data", "data/"):
        wanted = {"kind": "directory", "path": host.path(name), "mode": "0755"}
        for result in (host.check(wanted), host.converge(wanted)):
            assert [finding["code"] for finding in result["findings"]] == ["HOST-FILE"], name
    assert stat.S_IMODE(victim.stat().st_mode) == 0o700


def test_a_link_that_only_root_can_have_put_there_is_followed(host):
    """To a larger disk."""
    disk = host.root / "disk"
    (disk / "models").mkdir(parents=True)
    (disk / "models").chmod(0o700)
    (host.root / "data").symlink_to("disk/models")
    wanted = {"kind": "directory", "path": host.path("data"), "mode": "0750"}
    assert host.check(wanted)["changed"]
    assert host.converge(wanted)["changed"]
    assert (host.root / "data").is_symlink()
    assert stat.S_IMODE((disk / "models").stat().st_mode) == 0o750
    assert not host.converge(wanted)["changed"]
    host.converge({"kind": "directory", "path": host.path("data"), "state": "absent"})
    assert not (host.root / "data").exists()
    assert (disk / "models").is_dir()


def test_a_link_to_itself_is_refused(host):
    (host.root / "data").symlink_to("data")
    wanted = {"kind": "directory", "path": host.path("data"), "mode": "0755"}
    for result in (host.check(wanted), host.converge(wanted)):
        assert [finding["code"] for finding in result["findings"]] == ["HOST-FILE"]


def test_a_directory_gets_its_mode(host):
    made = {"kind": "directory", "path": host.path("a/b"), "mode": "0750"}
    assert host.converge(made)["changed"]
    assert stat.S_IMODE((host.root / "a/b").stat().st_mode) == 0o750
    assert not host.converge(made)["changed"]
