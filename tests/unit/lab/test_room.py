# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many hosts on one machine share root's inotify instances."""

import os

import pytest

from labkit import prerequisites
from labkit.console import ApiaryError


@pytest.fixture
def inotify(tmp_path):
    (tmp_path / "max_user_instances").write_text("128\n")
    return tmp_path


def limit(inotify):
    return int((inotify / "max_user_instances").read_text())


def test_a_limit_that_fits_stays(inotify):
    prerequisites.ensure_room(2, inotify)
    assert limit(inotify) == 128


def test_many_hosts_raise_it(inotify, capsys):
    prerequisites.ensure_room(40, inotify)
    assert limit(inotify) >= 40 * prerequisites.WATCHERS_OF_A_HOST
    assert "max_user_instances" in capsys.readouterr().err


def test_who_may_not_raise_it_is_told_how(inotify, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(type(inotify), "write_text", refuse)
    with pytest.raises(ApiaryError) as told:
        prerequisites.ensure_room(40, inotify)
    assert "sysctl -w fs.inotify.max_user_instances=" in str(told.value)


def test_few_hosts_are_tried_without_root(inotify, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    prerequisites.ensure_room(prerequisites.FEW_HOSTS, inotify)
    assert limit(inotify) == 128


def refuse(*_arguments, **_options):
    raise PermissionError(13, "Permission denied")
