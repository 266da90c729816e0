# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What another tool downloaded is taken into the store, and what it says of it is verified."""

import hashlib
import os
import shutil

import pytest

from support.weights import REPOSITORY, hub_double, published

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def plain(tmp_path, files):
    """A directory with the files and nothing that tells of them."""
    path = tmp_path / "plain"
    write(path, files)
    return path


def write(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)


def etag(name, content):
    listed = hub_double.entry(name, content)
    return listed["lfs"]["oid"] if "lfs" in listed else listed["oid"]


@pytest.fixture
def noted(plain, files, commit):
    """A directory as `hf download --local-dir` leaves it."""
    for name, content in files.items():
        note = plain / f".cache/huggingface/download/{name}.metadata"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{commit}\n{etag(name, content)}\n1795300334.17\n")
        note.with_suffix(".lock").touch()
    return plain


@pytest.fixture
def cached(tmp_path, files, commit):
    """A snapshot in the Hugging Face cache: links to blobs that bear their hashes."""
    snapshot = tmp_path / "models--apiary-lab--tiny/snapshots" / commit
    for name, content in files.items():
        blob = tmp_path / "models--apiary-lab--tiny/blobs" / etag(name, content)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    return snapshot


def test_a_plain_directory_is_published_without_the_hub(run, hub, store, files, commit, plain):
    run(commit, source=str(plain))
    assert published(store, commit) == files
    assert hub.asked == []
    shutil.rmtree(plain)
    plain.mkdir()
    assert not run(commit, source=str(plain))["changed"]


def test_the_copy_is_the_store_s_own(run, store, files, commit, plain):
    run(commit, source=str(plain))
    (plain / "config.json").write_text("other")
    assert published(store, commit) == files


def test_a_plain_directory_does_not_tell_its_commit(refused, plain):
    assert refused(source=str(plain)) == "WEIGHTS-PUBLISH-SOURCE"


@pytest.mark.parametrize("kind", ["noted", "cached"])
def test_the_hugging_face_tools_leave_what_tells_it(request, run, store, files, commit, kind):
    result = run(source=str(request.getfixturevalue(kind)))
    assert result["revision"] == commit
    assert published(store, commit) == files


@pytest.mark.parametrize("name", [SHARD, "config.json"])
@pytest.mark.parametrize("kind", ["noted", "cached"])
def test_a_damaged_download_is_not_published(request, refused, store, commit, kind, name):
    source = request.getfixturevalue(kind)
    place = (source / name).resolve()
    content = place.read_bytes()
    place.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert refused(commit, source=str(source)) == "WEIGHTS-FETCH-HASH"
    assert not (store / REPOSITORY / commit).exists()


def test_a_download_of_another_revision_is_not_published(refused, noted):
    assert refused("0" * 40, source=str(noted)) == "WEIGHTS-PUBLISH-SOURCE"


def test_another_store_s_revision_is_taken_with_its_manifest(run, refused, store, tmp_path, commit):
    run(commit)
    source, other = store / REPOSITORY / commit, str(tmp_path / "other")
    assert run(source=str(source), store=other)["revision"] == commit
    assert published(other, commit) == published(store, commit)
    (source / SHARD).unlink()
    assert refused(source=str(source), store=other + "2") == "WEIGHTS-PUBLISH-SOURCE"
    assert refused("0" * 40, source=str(source), store=other) == "WEIGHTS-PUBLISH-SOURCE"


def test_a_source_repairs_a_published_file(run, hub, store, files, commit, plain):
    run(commit)
    (store / REPOSITORY / commit / SHARD).unlink()
    hub.asked.clear()
    assert run(commit, source=str(plain))["fetched"] == [SHARD]
    assert published(store, commit) == files
    assert hub.asked == []


def test_a_source_that_is_not_what_was_published_repairs_nothing(
    refused, run, store, commit, plain
):
    run(commit)
    (store / REPOSITORY / commit / SHARD).unlink()
    (plain / SHARD).write_bytes(b"x" * 300_000)
    assert refused(commit, source=str(plain)) == "WEIGHTS-FETCH-HASH"


@pytest.mark.parametrize("revision", ["main", "abc"])
def test_a_branch_is_no_name_for_a_directory(refused, plain, revision):
    assert refused(revision, source=str(plain)) == "WEIGHTS-PUBLISH-SOURCE"


def test_a_source_that_is_empty_or_absent(refused, tmp_path, commit):
    (tmp_path / "empty").mkdir()
    assert refused(commit, source=str(tmp_path / "empty")) == "WEIGHTS-PUBLISH-SOURCE"
    assert refused(commit, source=str(tmp_path / "absent")) == "WEIGHTS-PUBLISH-SOURCE"


def test_a_dangling_link_is_named(run, commit, plain):
    (plain / "dangling.safetensors").symlink_to("nowhere")
    result = run(commit, source=str(plain))
    assert "dangling.safetensors" in result["findings"][0]["message"]


def test_what_is_no_file_is_named_and_not_dropped(run, commit, plain):
    os.mkfifo(plain / "pipe")
    assert "pipe" in run(commit, source=str(plain))["findings"][0]["message"]
    (plain / "pipe").unlink()
    (plain / "linked").symlink_to(plain / "tokenizer")
    assert "linked" in run(commit, source=str(plain))["findings"][0]["message"]


def test_check_mode_reads_the_source_and_writes_nothing(run, store, files, commit, plain):
    result = run(commit, source=str(plain), check_mode=True)
    assert result["fetched"] == sorted(files)
    assert not store.exists()


def test_content_is_told_by_its_hash(run, store, files, commit, plain):
    run(commit, source=str(plain))
    told = (store / REPOSITORY / commit / ".apiary-manifest.json").read_text()
    assert hashlib.sha256(files[SHARD]).hexdigest() in told
