# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A release: one version, the same bytes wherever it is built, refused where it would mislead."""

import hashlib
import json
import os
import re
import sys
import tarfile
import zipfile
from importlib.metadata import version as installed_version

import pytest
import release
import release_sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from apiary.app.cli import main

from .conftest import ROOT, commit, run

LONG_AGO = 915_148_800  # 1999: what no tool would write by itself


def test_the_version_is_the_same_wherever_it_shows(released, capsys):
    version = release.version(ROOT)
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9a-z.-]+)?", version)  # as Galaxy wants it
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.split()[-1] == installed_version("apiary")
    assert installed_version("apiary") == version, "run `make` again: .venv is of another version"
    newest, *_older = [one for one in release.sections(changelog()) if one != "Unreleased"]
    assert newest == version
    names = {path.name for path in (released / "dist").iterdir()}
    assert names == {
        f"apiary-{version}-py3-none-any.whl",
        f"apiary-{version}.cdx.json",
        f"apiary-{version}.tar.gz",
        f"apiary-instinct-{version}.tar.gz",
        "SHA256SUMS",
    }


def changelog():
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.night
def test_another_directory_time_umask_and_locale_give_the_same_bytes(released, tmp_path):
    clone = tmp_path / "a longer name" / "clone"
    clone.parent.mkdir()
    run("git", "clone", "--quiet", released, clone, cwd=tmp_path, umask=0o077)
    for path in [clone, *clone.rglob("*")]:
        if ".git" not in path.parts:
            os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    elsewhere = {"TZ": "Pacific/Chatham", "LC_ALL": "C", "HOME": str(tmp_path)}
    elsewhere |= {"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}
    command = (sys.executable, "tools/release.py", "--draft", "--out", tmp_path / "out")
    run(*command, cwd=clone, umask=0o077, **elsewhere)
    for one in sorted((released / "dist").iterdir()):
        assert (tmp_path / "out" / one.name).read_bytes() == one.read_bytes(), one.name


def test_nothing_of_the_machine_is_in_what_is_released(released, tarball, wheel):
    (sdist,) = set(released.glob("dist/apiary-*.tar.gz")) - {tarball}
    for path in (tarball, sdist):
        with tarfile.open(path) as archive:
            for member in archive:
                assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
                assert member.mtime == 1_700_000_000, member.name
                assert member.mode in (0o644, 0o755), (member.name, oct(member.mode))
    with zipfile.ZipFile(wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    for path in (released / "dist").iterdir():
        assert str(ROOT).encode() not in path.read_bytes()


def test_the_checksums_are_those_of_the_files(released):
    lines = (released / "dist/SHA256SUMS").read_text().splitlines()
    assert len(lines) == 4
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((released / "dist" / name).read_bytes()).hexdigest() == digest


@pytest.fixture(scope="module")
def bill(released):
    (path,) = released.glob("dist/*.cdx.json")
    return path.read_text()


def test_the_bill_of_materials_is_cyclonedx(bill):
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None


def test_the_bill_has_every_pinned_package_with_hashes_and_licence(bill):
    listed = {one["purl"]: one for one in json.loads(bill)["components"] if "purl" in one}
    pins = list(release_sbom.pins((ROOT / "requirements/runtime.txt").read_text()))
    assert listed.keys() == {f"pkg:pypi/{pin.name}@{pin.version}" for pin in pins}
    for pin in pins:
        component = listed[f"pkg:pypi/{pin.name}@{pin.version}"]
        (reference,) = component["externalReferences"]
        assert {one["content"] for one in reference["hashes"]} == set(pin.hashes) != set()
        assert component["licenses"], pin.name
    assert "UNKNOWN" not in bill


def test_the_bill_knows_what_needs_what(bill):
    document = json.loads(bill)
    needs = {one["ref"]: set(one.get("dependsOn", [])) for one in document["dependencies"]}
    pinned = {one["purl"] for one in document["components"] if "purl" in one}
    reached, rest = set(), ["apiary"]
    while rest:
        new = needs[rest.pop()] - reached
        reached |= new
        rest += new
    assert reached == pinned | {"apiary.instinct"}, "a pinned package that nothing needs"


def test_the_bill_has_every_file_of_the_collection(bill, tarball):
    (collection,) = [one for one in json.loads(bill)["components"] if one["name"] == "instinct"]
    listed = {one["name"]: one["hashes"][0]["content"] for one in collection["components"]}
    with tarfile.open(tarball) as archive:
        there = {
            member.name: hashlib.sha256(archive.extractfile(member).read()).hexdigest()
            for member in archive
            if member.isfile() and member.name not in ("MANIFEST.json", "FILES.json")
        }
    assert listed == there


def test_the_bill_names_no_host(bill):
    assert set(re.findall(r"https?://([^/\"]+)", bill)) == {"cyclonedx.org"}  # its schema


@pytest.fixture
def small(tmp_path):
    """A repository with just what the checks look at."""
    (tmp_path / "galaxy.yml").write_text("version: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# C\n\n## Unreleased\n\n## 1.2.0 - 2026-01-01\n\n- x\n")
    commit(tmp_path)
    return tmp_path


def amend(directory, name, text):
    (directory / name).write_text(text)
    run("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet",
        "--all", "--message=more", cwd=directory)  # fmt: skip


def test_what_is_committed_announced_and_not_tagged_elsewhere_may_be_released(small):
    release.check(small)
    run("git", "tag", "v1.2.0", cwd=small)
    release.check(small)


@pytest.mark.parametrize("name", ["galaxy.yml", "new file"])
def test_a_tree_that_is_not_committed_is_refused(small, name):
    (small / name).write_text("version: 1.2.0 # changed\n")
    with pytest.raises(release.RefusedError, match=name):
        release.check(small)


def test_a_version_without_its_changelog_is_refused(small):
    amend(small, "galaxy.yml", "version: 1.3.0\n")
    with pytest.raises(release.RefusedError, match=r"says nothing of 1\.3\.0"):
        release.check(small)


def test_changes_that_no_release_announces_are_refused(small):
    text = (small / "CHANGELOG.md").read_text()
    amend(small, "CHANGELOG.md", text.replace("## Unreleased\n", "## Unreleased\n\n- y\n"))
    with pytest.raises(release.RefusedError, match="Unreleased"):
        release.check(small)


def test_a_version_that_another_commit_has_is_refused(small):
    run("git", "tag", "v1.2.0", cwd=small)
    amend(small, "galaxy.yml", "version: 1.2.0 # more\n")
    with pytest.raises(release.RefusedError, match=r"v1\.2\.0"):
        release.check(small)


def test_a_refusal_says_what_to_do_and_writes_nothing(small, monkeypatch, capsys):
    monkeypatch.setattr(release, "ROOT", small)
    (small / "new").touch()
    assert release.main(["--out", str(small / "dist")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: RELEASE: the tree: is not what is committed: new\n  remedy: ")
    assert not (small / "dist").exists()
