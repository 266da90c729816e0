# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The manifest is a contract between the writer and every host: what is wrong is refused."""

import copy
import json
import string

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.module_utils.weights import (
    manifest as weights_manifest,
)
from ansible_collections.apiary.instinct.plugins.module_utils.weights.manifest import (
    Manifest,
    ManifestFile,
)
from hypothesis import given
from hypothesis import strategies as st

MANIFEST = Manifest(
    repository="org/name",
    revision="0" * 40,
    created_at="2026-01-02T03:04:05Z",
    files=(ManifestFile("a/b.json", 3, "0" * 64), ManifestFile("c.bin", 0, "f" * 64)),
)

PARTS = st.text(string.ascii_letters + string.digits + "._- é", min_size=1, max_size=8)
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join).filter(weights_manifest.safe_path)
FILES = st.builds(
    ManifestFile,
    PATHS,
    st.integers(0, 2**45),
    st.text("0123456789abcdef", min_size=64, max_size=64),
)


def test_the_contract():
    assert json.loads(weights_manifest.render(MANIFEST)) == {
        "schema": "apiary.weights/v1",
        "repository": "org/name",
        "revision": "0" * 40,
        "created_at": "2026-01-02T03:04:05Z",
        "total_bytes": 3,
        "selection": {},
        "files": [
            {"path": "a/b.json", "size": 3, "sha256": "0" * 64},
            {"path": "c.bin", "size": 0, "sha256": "f" * 64},
        ],
    }


def test_a_manifest_without_a_selection_is_read():
    document = json.loads(weights_manifest.render(MANIFEST))
    del document["selection"]
    assert weights_manifest.parse(json.dumps(document), "x") == MANIFEST


@given(st.lists(FILES, max_size=5, unique_by=lambda one: one.path))
def test_what_is_rendered_is_read_back(files):
    manifest = Manifest("o/n", "0" * 40, "2026-01-02T03:04:05Z", tuple(sorted(files)))
    text = weights_manifest.render(manifest)
    assert weights_manifest.parse(text, "x") == manifest
    assert weights_manifest.render(weights_manifest.parse(text, "x")) == text


def edit(**fields):
    return lambda document: document.update(fields)


def edit_file(**fields):
    return lambda document: document["files"][0].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        edit(schema="apiary.weights/v2"),
        edit(total_bytes=4),
        edit(files={}),
        edit(files=[[]]),
        edit(files=None),
        edit(created_at="yesterday"),
        edit(selection=3),
        edit_file(path="../x"),
        edit_file(path="/x"),
        edit_file(path="a//b"),
        edit_file(path=".apiary-manifest.json"),
        edit_file(path="a\nb"),
        edit_file(path="a\\b"),
        edit_file(path="c.bin"),
        edit_file(size=-1),
        edit_file(size=True),
        edit_file(size="3"),
        edit_file(size=3.0),
        edit_file(sha256="F" * 64),
        edit_file(sha256=None),
        lambda document: document.pop("revision"),
        lambda document: document["files"][0].pop("sha256"),
    ],
)
def test_what_does_not_keep_to_the_contract_is_refused(change):
    document = copy.deepcopy(json.loads(weights_manifest.render(MANIFEST)))
    change(document)
    with pytest.raises(ApiaryError) as caught:
        weights_manifest.parse(json.dumps(document), "/x/.apiary-manifest.json")
    assert caught.value.findings[0].code == "WEIGHTS-MANIFEST-INVALID"
    assert caught.value.findings[0].subject == "/x/.apiary-manifest.json"


def test_a_directory_without_a_manifest_is_not_published(tmp_path):
    with pytest.raises(ApiaryError) as caught:
        weights_manifest.read(str(tmp_path))
    assert caught.value.findings[0].code == "WEIGHTS-MANIFEST-MISSING"


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / weights_manifest.NAME).write_bytes(b"\xff\xfe")
    with pytest.raises(ApiaryError):
        weights_manifest.read(str(tmp_path))


def test_progress_adds_up_to_what_is_hashed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.json").write_bytes(b"abc")
    (tmp_path / "c.bin").write_bytes(b"")
    seen = []
    found = weights_manifest.verify(str(tmp_path), MANIFEST, "hashes", 2, seen.append)
    assert [one.kind for one in found] == ["hash", "hash"]
    assert sum(seen) == 3
