# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything is touched: one finding each, and no secret in it."""

import pytest

from support.host.weights import NFS, Host, codes, plan

STAGED = {"repository": "a/b", "source": "/srv/models/a/b/current", "to": "/nvme"}


@pytest.mark.parametrize(
    ("mount", "code"),
    [
        ({**NFS, "path": "srv/models"}, "WEIGHTS-PATH"),
        ({**NFS, "path": "/srv/../models"}, "WEIGHTS-PATH"),
        ({**NFS, "path": "/"}, "WEIGHTS-PATH"),
        ({**NFS, "source": "nfs-1"}, "WEIGHTS-SOURCE"),
        ({**NFS, "source": "2001:db8::1:/export"}, "WEIGHTS-SOURCE"),
        ({**NFS, "source": "", "type": "ext4"}, "WEIGHTS-SOURCE"),
        ({**NFS, "profile": "fast"}, "WEIGHTS-PROFILE"),
        ({**NFS, "options": {"soft": True}}, "WEIGHTS-SOFT"),
        ({**NFS, "options": {"bg": True}}, "WEIGHTS-SOFT"),
        ({**NFS, "options": {"vers": "4.0"}}, "WEIGHTS-VERSION"),
        ({**NFS, "options": {"context": '"a b"'}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "options": {"sec": "krb5", "nconnect": 4}}, "WEIGHTS-KERBEROS"),
        ({**NFS, "path": "/usr"}, "WEIGHTS-PLACE"),
        ({**NFS, "path": "/var/lib"}, "WEIGHTS-PLACE"),
        ({**NFS, "path": "/home"}, "WEIGHTS-PLACE"),
        ({**NFS, "options": {"nconnect": 17}}, "WEIGHTS-NUMBER"),
        ({**NFS, "options": {"nconnect": "0"}}, "WEIGHTS-NUMBER"),
        ({**NFS, "options": {"nconnect": True}}, "WEIGHTS-NUMBER"),
        ({**NFS, "readahead_kib": -1}, "WEIGHTS-NUMBER"),
        ({**NFS, "options": {"sec": "sys,soft"}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "options": {"rw,soft": True}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "options": {"vers=4.0": True}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "options": {"": True}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "options": {"sec": ""}}, "WEIGHTS-OPTION-TEXT"),
        ({**NFS, "type": "ext4\nWhat=/x"}, "WEIGHTS-SOURCE"),
        ({**NFS, "source": "weights", "type": "bind"}, "WEIGHTS-SOURCE"),
        ({**NFS, "source": "/srv/../etc", "type": "bind"}, "WEIGHTS-SOURCE"),
        ({**NFS, "source": "weights", "type": "local"}, "WEIGHTS-SOURCE"),
    ],
)
def test_a_mount_that_cannot_be_right_is_refused_before_anything(mount, code):
    found = plan(Host(), mount)
    assert codes(found.findings) == [code]
    assert found.findings[0].remedy
    assert (found.files, found.mounts, found.packages) == ((), (), ())


@pytest.mark.parametrize(
    "options",
    [
        {"password": "hunter2"},
        {"PASS": "hunter2"},
        {"passwd": "hunter 2,hunter2"},
        {"secret": "hunter2"},
        {"password=hunter2": True},
    ],
)
def test_a_password_among_the_options_is_refused_and_not_repeated(options):
    mount = {"path": "/srv/models", "source": "//nas/models", "type": "cifs", "options": options}
    found = plan(Host(), mount)
    assert codes(found.findings) == ["WEIGHTS-SECRET"]
    assert "=FILE" in found.findings[0].remedy
    assert "hunter2" not in repr(found)
    named = {**mount, "options": {"credentials": "/etc/apiary/nas"}}
    assert plan(Host(), named).findings == ()


def test_what_an_option_is_refused_for_is_not_repeated():
    mount = {**NFS, "options": {"user": "it,password=hunter2"}}
    found = plan(Host(), mount)
    assert codes(found.findings) == ["WEIGHTS-OPTION-TEXT"]
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("path", ["/srv", "/mnt", "/opt/models", "/var/lib/models", "/usrlocal"])
def test_a_place_that_holds_nothing_of_the_system_may_be_mounted_over(path):
    assert plan(Host(), {**NFS, "path": path}).findings == ()


def test_a_directory_of_the_system_may_be_where_models_are():
    assert plan(Host(), {"path": "/opt", "type": "local"}).findings == ()


@pytest.mark.parametrize("connections", [1, 16, "16"])
def test_as_many_connections_as_the_kernel_has(connections):
    assert plan(Host(), {**NFS, "options": {"nconnect": connections}}).findings == ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"session_slots": -1}, "expected at least 0"),
        ({"staged": [{**STAGED, "keep": 0}]}, "expected at least 1"),
    ],
)
def test_a_number_without_sense_is_refused(settings, told):
    (one,) = plan(Host(), **settings).findings
    assert (one.code, one.severity) == ("WEIGHTS-NUMBER", "error")
    assert told in one.message
    assert one.remedy


@pytest.mark.parametrize("name", ["../../x", "a/..b", "a/b..c", "a", "a/b/c", "", "/a", "a/b\n"])
def test_a_repository_that_would_lead_elsewhere_is_refused(name):
    found = plan(Host(), staged=[{**STAGED, "repository": name}])
    assert codes(found.findings) == ["WEIGHTS-REPOSITORY"]
    assert plan(Host(), staged=[STAGED]).findings == ()


def test_two_mounts_at_one_path_are_refused():
    assert codes(plan(Host(), NFS, NFS).findings) == ["WEIGHTS-TWICE"]


def test_staging_to_the_mount_itself_is_refused():
    staged = {"repository": "a/b", "source": "/srv/models/a/b/current", "to": "/srv/models/x"}
    assert codes(plan(Host(), staged=[staged]).findings) == ["WEIGHTS-STAGE"]
