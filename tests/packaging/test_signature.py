# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A signed release: whoever has the public key sees each way in which it is not what was signed."""

import base64
import json
import shutil
import subprocess

import pytest
import release
import release_signature

from apiary.app.cli import main

from .conftest import ROOT, WHO, commit, run

FILES = {"apiary-1.2.0-py3-none-any.whl": b"wheel", "apiary-instinct-1.2.0.tar.gz": b"collection"}
WHEEL = next(iter(FILES))


def new_key(directory, name):
    path = directory / name
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name} of a test", "-f", path],
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A release of two small files, its throw-away key and another one."""
    base = tmp_path_factory.mktemp("sealed")
    tree, dist = base / "tree", base / "dist"
    (tree / "requirements").mkdir(parents=True)
    dist.mkdir()
    for name in release_signature.PINS:
        (tree / name).write_text("click==8.3.0 \\\n")
    (tree / "galaxy.yml").write_text("version: 1.2.0\n")
    commit(tree)
    for name, content in FILES.items():
        (dist / name).write_bytes(content)
    listed = release.checksums([dist / name for name in FILES])
    (dist / "SHA256SUMS").write_text("".join(f"{sum_}  {name}\n" for name, sum_ in listed.items()))
    key, other = new_key(base, "signer"), new_key(base, "other")
    made = release.seal(tree, sorted(dist.iterdir()), key, "mailto:signer@example.org", 0.0)
    assert {path.name for path in made} == {path.name for path in dist.iterdir()}
    return base, key, other


@pytest.fixture
def dist(sealed, tmp_path):
    """A copy of it that a test may spoil."""
    return shutil.copytree(sealed[0] / "dist", tmp_path / "dist")


@pytest.fixture
def verified(sealed, capsys):
    """Verify with the signer's public key, or another; return exit code, outcomes, findings."""

    def verify(place, key="signer.pub"):
        words = ["--release-key", str(sealed[0] / key)] if key else []
        code = main(["doctor", "--release", str(place), *words, "--json"])
        out, err = capsys.readouterr()
        outcomes = {one["name"]: one["outcome"] for one in json.loads(out)["checks"]}
        findings = json.loads(err)["findings"] if err else []
        return code, outcomes, [(one["code"], one["subject"]) for one in findings]

    return verify


def test_a_signed_release_is_verified_with_its_public_key(dist, verified):
    passed = dict.fromkeys(("signature", "provenance", "files"), "ok")
    assert verified(dist) == (0, passed, [])
    assert verified(dist / WHEEL) == (0, passed, [])


def test_a_person_reads_of_which_commit_it_is_and_who_built_it(dist, sealed, capsys):
    key = str(sealed[0] / "signer.pub")
    assert main(["doctor", "--release", str(dist), "--release-key", key]) == 0
    shown = capsys.readouterr().out
    head = run("git", "rev-parse", "HEAD", cwd=sealed[0] / "tree").strip()
    assert f"commit {head}, built by mailto:signer@example.org" in shown
    assert "Next: install it" in shown


def spoil_byte(dist):
    (dist / WHEEL).write_bytes(b"whEel")


def spoil_sums(dist):
    path = dist / "SHA256SUMS"
    path.write_text(path.read_text().replace("a", "b"))


def spoil_signature(dist):
    (dist / "SHA256SUMS.sig").write_bytes(base64.b64encode(b"nothing that ssh-keygen knows"))


def statement_of_others(dist, key):
    path = dist / "provenance.json"
    path.write_text(path.read_text().replace("apiary-instinct", "apiary-other"))
    release_signature.sign(path, key)


def no_statement(dist, key):
    (dist / "provenance.json").write_text("[]")
    release_signature.sign(dist / "provenance.json", key)


@pytest.mark.parametrize(
    ("spoil", "code", "subject"),
    [
        (spoil_byte, "CHANGED", WHEEL),
        (lambda dist: (dist / WHEEL).unlink(), "MISSING", WHEEL),
        (lambda dist: (dist / "more.whl").touch(), "EXTRA", "more.whl"),
        (spoil_sums, "SIGNATURE", "SHA256SUMS"),
        (spoil_signature, "SIGNATURE", "SHA256SUMS"),
        (lambda dist: (dist / "SHA256SUMS.sig").unlink(), "UNSIGNED", "SHA256SUMS"),
        (lambda dist: (dist / "provenance.json.sig").unlink(), "UNSIGNED", "provenance.json"),
    ],
)
def test_what_is_not_as_signed_is_one_finding(dist, verified, spoil, code, subject):
    spoil(dist)
    status, _outcomes, findings = verified(dist)
    assert status == 1
    assert findings == [(f"DOCTOR-RELEASE-{code}", subject)]


@pytest.mark.parametrize("spoil", [statement_of_others, no_statement])
def test_a_statement_of_other_files_is_refused_though_it_is_signed(dist, sealed, verified, spoil):
    spoil(dist, sealed[1])
    assert verified(dist)[2] == [("DOCTOR-RELEASE-PROVENANCE", str(dist / "provenance.json"))]


def test_a_list_that_is_gone_is_told(dist, verified):
    (dist / "SHA256SUMS").unlink()
    assert verified(dist)[2] == [("DOCTOR-RELEASE-ABSENT", str(dist / "SHA256SUMS"))]


def test_another_key_than_the_signers_is_told_with_its_fingerprint(dist, sealed, capsys):
    command = ["doctor", "--release", str(dist), "--release-key", str(sealed[0] / "other.pub")]
    assert main(command) == 1
    stderr = capsys.readouterr().err
    assert "DOCTOR-RELEASE-SIGNER" in stderr
    printed = run("ssh-keygen", "-lf", f"{sealed[1]}.pub", cwd=ROOT).split()[1]
    assert printed in stderr


def test_a_private_key_and_no_key_at_all_are_no_public_key(dist, sealed, verified):
    assert verified(dist, "signer")[2] == [("DOCTOR-RELEASE-KEY", str(sealed[1]))]
    assert verified(dist, None)[2] == [("DOCTOR-RELEASE-KEY", "--release-key")]


def test_one_file_is_judged_alone(dist, verified):
    """Whoever has one file need not get the others; one that is not listed is not the release's."""
    (dist / WHEEL).unlink()
    assert verified(dist / "apiary-instinct-1.2.0.tar.gz")[0] == 0
    (dist / "more.whl").touch()
    assert verified(dist / "more.whl")[2] == [("DOCTOR-RELEASE-EXTRA", "more.whl")]


def test_the_signature_is_what_any_openssh_verifies(dist, sealed):
    """Somebody without Apiary needs no more than ssh-keygen and sha256sum."""
    (dist / "signers").write_text(f"apiary-release {(sealed[0] / 'signer.pub').read_text()}")
    for name in ("SHA256SUMS", "provenance.json"):
        verify = "ssh-keygen -Y verify -f signers -I apiary-release -n apiary-release"
        assert "Good" in run("sh", "-c", f"{verify} -s {name}.sig < {name}", cwd=dist)
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)


def test_the_provenance_names_commit_pins_and_tools_with_digests(dist):
    made = json.loads((dist / "provenance.json").read_text())
    assert (made["_type"], made["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    definition, details = made["predicate"]["buildDefinition"], made["predicate"]["runDetails"]
    source, *others = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": definition["externalParameters"]["commit"]}
    assert all(len(one["digest"]["sha256"]) == 64 for one in others)
    assert len(others) == len(release_signature.PINS) + len(release_signature.TOOLS)
    assert details["builder"]["id"] == "mailto:signer@example.org"
    assert details["metadata"]["startedOn"] == "1970-01-01T00:00:00Z"


@pytest.fixture
def announced(tmp_path, monkeypatch):
    """A repository that may be released."""
    for name in WHO:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "galaxy.yml").write_text("version: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# C\n\n## 1.2.0 - 2026-01-01\n\n- x\n")
    (tmp_path / ".gitignore").write_text("key*\n")
    commit(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.delenv("APIARY_RELEASE_KEY", raising=False)
    return tmp_path


def test_a_release_without_a_key_is_refused_before_it_is_built(announced, capsys):
    out = announced.parent / "dist"
    assert release.main(["--out", str(out)]) == 1
    assert "none is given" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(("name", "why"), [("key", "repository"), ("key-of-nobody", "no such key")])
def test_a_key_in_the_repository_or_nowhere_is_refused(announced, capsys, name, why):
    new_key(announced, "key")
    assert release.main(["--key", str(announced / name)]) == 1
    assert why in capsys.readouterr().err


def test_other_files_beside_a_release_are_not_signed_over(sealed, dist):
    (dist / "apiary-1.1.0.tar.gz").touch()
    made = [dist / name for name in (*FILES, "SHA256SUMS")]
    with pytest.raises(release.RefusedError, match=r"apiary-1\.1\.0"):
        release.seal(sealed[0] / "tree", made, sealed[1], "mailto:x@example.org", 0.0)
