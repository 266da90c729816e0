# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.packages import keys as rocm_keys
from ansible_collections.apiary.instinct.plugins.module_utils.packages import (
    managers as rocm_managers,
)
from ansible_collections.apiary.instinct.plugins.module_utils.resources import (
    file,
    repository,
    types,
)
from ansible_collections.apiary.instinct.plugins.module_utils.resources.repository import matches
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.host.openpgp import BOTH, ONE, ONE_ARMORED, TWO
from support.modules import run_module

WANTED = "1:6.16.13.30300400-*"
OFFERED = "amdgpu-dkms | 1:6.16.13.30300400-2341068.22.04 | file:/r jammy/main amd64 Packages\n"


class Apt:
    """apt's answers to one module run, and what it was asked."""

    def __init__(self, update=(0, ""), madison=OFFERED, readable=(0, "")):
        self.answers = {"update": update, "madison": (0, madison), "indextargets": readable}
        self.asked = []

    def run(self, argv):
        verb = next(word for word in argv if word in self.answers)
        self.asked.append(verb)
        return self.answers[verb]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Run the module below a directory in place of /etc/apt."""
    monkeypatch.setattr(rocm_managers.Apt, "sources", f"{tmp_path}/sources/")
    monkeypatch.setattr(file, "ORIGINALS", str(tmp_path / "originals"))
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    key = tmp_path / "published.asc"
    key.write_bytes(BOTH)

    def run(apt, check=False, fingerprint=ONE, content="deb file:///r jammy main\n", **changes):
        monkeypatch.setattr(repository, "runner", lambda _module: apt.run)
        told = {
            "manager": "apt",
            "keys": [{"url": f"file://{key}", "path": str(tmp_path / "amd.gpg"),
                      "fingerprint": fingerprint}],
            "files": [{"path": f"{tmp_path}/sources/amdgpu.list", "content": content}],
            "packages": [{"name": "amdgpu-dkms", "version": WANTED}],
        }  # fmt: skip
        resource = {"kind": "repository", "name": "amd", **told, **changes}
        return run_module(converge, capsys, check, resources=[resource])

    return run


def codes(result):
    return [one["code"] for one in result["findings"]]


def there(tmp_path):
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_keys_and_files_are_written_and_a_second_run_asks_nothing(run, tmp_path):
    apt = Apt()
    first = run(apt)
    assert sorted(diff["after_header"] for diff in first["diff"]) == [
        str(tmp_path / "amd.gpg"),
        f"{tmp_path}/sources/amdgpu.list",
    ]
    assert (tmp_path / "amd.gpg").read_bytes().startswith(b"\x98")
    apt = Apt()
    assert run(apt)["changed"] is False
    assert apt.asked == []


def test_check_mode_proves_and_writes_nothing(run, tmp_path):
    apt = Apt()
    result = run(apt, check=True)
    assert result["changed"]
    assert f"+ {ONE}" in "+ ".join(one["after"] for one in result["diff"]).replace(
        "OpenPGP key ", "+ "
    )
    assert apt.asked == ["update", "madison"]
    assert there(tmp_path) == ["published.asc"]


def test_a_wrong_fingerprint_ends_it_before_anything_is_asked_or_written(run, tmp_path):
    apt = Apt()
    result = run(apt, fingerprint="CA8BB4727A47B4D09B4EE8969386B48A1A693C5C")
    assert codes(result) == ["ROCM-KEY-FINGERPRINT"]
    assert ONE in result["msg"]
    assert apt.asked == []
    assert there(tmp_path) == ["published.asc"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("W: GPG error: file:/r jammy InRelease: NO_PUBKEY 0D8775C8", "ROCM-REPOSITORY-SIGNATURE"),
        ("E: The following signatures were invalid: BADSIG 86", "ROCM-REPOSITORY-SIGNATURE"),
        ("E: Failed to fetch http://r/InRelease  404  Not Found", "ROCM-REPOSITORY-MISSING"),
        ("E: The repository 'x' does not have a Release file.", "ROCM-REPOSITORY-MISSING"),
        ("E: Failed to fetch http://r  Could not connect", "ROCM-REPOSITORY-UNREACHABLE"),
    ],
)
def test_a_repository_that_cannot_be_used_is_one_finding_and_nothing_written(
    said, code, run, tmp_path
):
    result = run(Apt(update=(100, said)))
    assert codes(result) == [code]
    assert result["findings"][0]["subject"] == "file:///r"
    assert there(tmp_path) == ["published.asc"]


def test_a_password_in_an_address_is_told_nowhere(run):
    content = "deb https://mirror:secret@r.example/amdgpu jammy main\n"
    said = "E: Failed to fetch https://mirror:secret@r.example/amdgpu  404  Not Found"
    failed, wrote = run(Apt(update=(100, said)), content=content), run(Apt(), content=content)
    assert "secret" not in json.dumps([failed["msg"], failed["findings"], wrote["diff"]])


def test_a_missing_version_tells_those_that_are_there(run, tmp_path):
    result = run(Apt(madison=OFFERED.replace("30300400", "30200100")))
    assert codes(result) == ["ROCM-PACKAGE-VERSION"]
    assert "found 1:6.16.13.30200100-2341068.22.04, expected 1:6.16.13.30300400-*" in result["msg"]
    assert there(tmp_path) == ["published.asc"]


def test_earlier_files_are_put_back_where_apt_cannot_read_all_sources(run, tmp_path):
    source, key = tmp_path / "sources/amdgpu.list", tmp_path / "amd.gpg"
    source.parent.mkdir()
    source.write_text("deb file:///old jammy main\n")
    key.write_bytes(ONE_ARMORED)
    said = "E: Conflicting values set for option Signed-By regarding source file:/r/ jammy"
    result = run(Apt(readable=(100, said)))
    assert codes(result) == ["ROCM-REPOSITORY-CONFLICT"]
    assert source.read_text() == "deb file:///old jammy main\n"
    assert key.read_bytes() == ONE_ARMORED


def test_files_that_were_not_there_are_gone_again(run, tmp_path):
    run(Apt(readable=(100, "E: Conflicting values")))
    assert there(tmp_path) == ["published.asc"]


def test_a_key_file_with_a_second_key_is_written_anew(run, tmp_path):
    (tmp_path / "amd.gpg").write_bytes(rocm_keys.dearmor(BOTH))
    result = run(Apt())
    assert str(tmp_path / "amd.gpg") in [diff["after_header"] for diff in result["diff"]]
    assert any(TWO in one["before"] and TWO not in one["after"] for one in result["diff"])


def test_the_diff_of_a_key_that_goes_has_its_fingerprint(run, tmp_path):
    (tmp_path / "amd.gpg").write_bytes(rocm_keys.dearmor(ONE_ARMORED))
    result = run(Apt(), keys=[], files=[{"path": str(tmp_path / "amd.gpg")}], packages=[])
    assert [one["before"] for one in result["diff"]] == [f"OpenPGP key {ONE}\n"]
    assert not (tmp_path / "amd.gpg").exists()


@pytest.mark.parametrize("url", ["/nowhere/key.asc", "file:///nowhere/key.asc"])
def test_a_key_that_is_not_there_is_a_finding(url, run, tmp_path):
    keys = [{"url": url, "path": str(tmp_path / "a.gpg"), "fingerprint": ONE}]
    assert codes(run(Apt(), keys=keys)) == ["ROCM-KEY-UNREADABLE"]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1:6.16.13.30300400-2341068.24.04", "1:6.16.13.30300400-*", True),
        ("1:6.16.13.30300400-2341068.24.04", "6.16.13.30300400-*", True),
        ("1:30.30.4.30300400-2341068", "*.30300400-*", True),
        ("6.16.13.30300400-2341068.el9", "6.16.13.30300400", True),
        ("1:6.16.6.30200100-2255209.24.04", "1:6.16.13.30300400-*", False),
        ("10.0.0-5", None, True),
    ],
)
def test_versions_are_compared_as_each_package_manager_writes_them(version, wanted, fits):
    assert matches(version, wanted) is fits
