# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user: made, changed, refused where another's has the name, removed where it is ours."""

import grp
import pwd

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import user as kind

OURS = {
    "kind": "user",
    "name": "apiary-x",
    "comment": "Apiary engines of x",
    "system": True,
    "home": "/var/lib/apiary",
    "shell": "/usr/sbin/nologin",
}
GONE = {**{key: OURS[key] for key in ("kind", "name", "comment")}, "state": "absent"}


@pytest.fixture
def users(monkeypatch):
    """The host's users, by name."""
    known = {}
    monkeypatch.setattr(kind.pwd, "getpwnam", lambda name: known[name])
    return known


def entry(comment, home="/var/lib/apiary", shell="/usr/sbin/nologin"):
    return pwd.struct_passwd(("apiary-x", "x", 990, 990, comment, home, shell))


def test_a_deployment_s_user_gets_a_group_of_its_own(host, users):
    result = host.converge(OURS)
    assert not result.get("failed"), result
    assert host.commands == [
        "useradd --no-create-home --system --home /var/lib/apiary --shell /usr/sbin/nologin"
        " --comment Apiary engines of x --user-group apiary-x"
    ]
    users["apiary-x"] = entry("Apiary engines of x")
    assert not host.converge(OURS)["changed"]


def test_a_group_that_was_left_behind_becomes_its_own(host, users, monkeypatch):
    """userdel leaves one that has members, and useradd makes none that is there."""
    left = {"apiary-x": grp.struct_group(("apiary-x", "x", 990, []))}
    monkeypatch.setattr(kind.grp, "getgrnam", lambda name: left[name])
    host.converge(OURS)
    assert host.commands[0].endswith("--comment Apiary engines of x --gid apiary-x apiary-x")


def test_somebody_else_s_user_of_that_name_is_refused_and_never_removed(host, users):
    users["apiary-x"] = entry("Ann", "/home/ann", "/bin/bash")
    result = host.converge(OURS)
    assert [finding["code"] for finding in result["findings"]] == ["HOST-USER"]
    assert not host.converge(GONE)["changed"]
    assert host.commands == []


def test_a_user_of_the_operator_s_is_taken_as_it_is(host, users):
    users["vllm"] = entry("Whoever", "/var/lib/apiary")
    named = {key: value for key, value in OURS.items() if key != "comment"}
    assert not host.converge({**named, "name": "vllm"})["changed"]


def test_our_own_is_removed_once(host, users):
    assert not host.converge(GONE)["changed"]
    users["apiary-x"] = entry("Apiary engines of x")
    assert host.check(GONE)["changed"]
    host.converge(GONE)
    assert host.commands == ["userdel apiary-x"]
