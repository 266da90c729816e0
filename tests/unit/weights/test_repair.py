# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damage is found, only what is damaged is fetched, and readers keep what they have open."""

import json
import mmap
import os

import pytest
from ansible_collections.apiary.instinct.plugins.modules import weights_publish

from support.weights import REPOSITORY, hub_double, published, snapshot

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def directory(run, store, commit):
    run(commit)
    return store / REPOSITORY / commit


def damage(directory, kind, name=SHARD):
    """Damage a published file as a disk or a person would; return what is told of it."""
    place = directory / name
    status = place.stat()
    if kind == "missing":
        place.unlink()
        return f"{name} (missing)"
    content = place.read_bytes()
    content = content[:-1] if kind == "size" else bytes([content[0] ^ 1]) + content[1:]
    place.chmod(0o644)
    place.write_bytes(content)
    place.chmod(0o444)
    if kind == "hash":  # as a disk damages: nobody touched it
        os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"{name} ({'hash' if kind == 'touched' else kind}: found "


@pytest.mark.parametrize("kind", ["missing", "size"])
def test_verify_finds_by_size(run, directory, commit, kind):
    told = damage(directory, kind)
    result = run(commit, action="verify")
    assert result["findings"][0]["code"] == "WEIGHTS-MANIFEST-DAMAGED"
    assert told in result["msg"]
    assert f"weights_action=repair -e weights_repository={REPOSITORY}" in result["msg"]


@pytest.mark.parametrize("kind", ["missing", "size", "touched", "hash"])
def test_verify_finds_by_hash(run, directory, commit, kind):
    told = damage(directory, kind)
    before = snapshot(directory)
    result = run(commit, action="verify", hashes=True)
    assert told in result["msg"]
    assert snapshot(directory) == before


def test_verify_of_what_is_right_changes_nothing_and_asks_nobody(run, hub, directory):
    before, asked = snapshot(directory), len(hub.asked)
    result = run(action="verify", hashes=True)  # the current one
    assert not result["changed"]
    assert result["path"] == str(directory)
    assert snapshot(directory) == before
    assert len(hub.asked) == asked


def test_verify_tells_of_files_that_nobody_published(run, directory, commit, monkeypatch):
    warned = []
    monkeypatch.setattr(
        weights_publish.AnsibleModule, "warn", lambda _module, text: warned.append(text)
    )
    (directory / "evil.safetensors").write_text("")
    result = run(commit, action="verify")
    assert result["unknown"] == ["evil.safetensors"]
    assert warned == [f"{directory}: nobody published evil.safetensors"]


def test_verify_names_five_and_counts_the_rest(run, directory, files, commit):
    for name in files:
        damage(directory, "missing", name)
    message = run(commit, action="verify")["msg"]
    assert "8 of 8 files" in message
    assert "and 3 more" in message


@pytest.mark.parametrize("kind", ["missing", "size", "touched"])
def test_publish_repairs_what_shows_without_reading(
    run, hub, directory, store, files, commit, kind
):
    damage(directory, kind)
    hub.asked.clear()
    assert run(commit)["fetched"] == [SHARD]
    assert published(store, commit) == files
    assert len(hub.asked) == 1  # no listing: the manifest knows
    assert not run(commit)["changed"]


@pytest.mark.parametrize("kind", ["missing", "size", "touched", "hash"])
@pytest.mark.parametrize("name", [SHARD, "config.json", "tokenizer/vocab.json"])
def test_repair_fetches_the_damaged_file_only(
    run, hub, directory, store, files, commit, kind, name
):
    damage(directory, kind, name)
    others = {path: one for path, one in snapshot(directory).items() if not path.endswith(name)}
    hub.asked.clear()
    result = run(commit, action="repair")
    assert result["fetched"] == [name]
    assert published(store, commit) == files
    after = snapshot(directory)
    names = (".apiary-manifest.json", "/tokenizer")
    assert {path: one for path, one in others.items() if not path.endswith(names)}.items() <= (
        after.items()
    )
    assert not run(commit, action="repair")["changed"]
    assert {path.name for path in (store / REPOSITORY).iterdir()} == {commit, "current"}


def test_check_mode_of_repair_tells_and_leaves(run, directory, commit):
    damage(directory, "hash")
    before = snapshot(directory)
    result = run(commit, action="repair", check_mode=True)
    assert result["fetched"] == [SHARD]
    assert SHARD not in result["diff"]["before"]
    assert SHARD in result["diff"]["after"]
    assert snapshot(directory) == before


def test_a_reader_keeps_the_file_it_has_open(run, directory, commit):
    """vLLM maps the files: written in place, its pages would change or vanish (SIGBUS)."""
    damage(directory, "hash")
    with open(directory / SHARD, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        inode = os.fstat(stream.fileno()).st_ino
        seen = mapped[:]
        run(commit, action="repair")
        assert mapped[:] == seen
        assert (directory / SHARD).stat().st_ino != inode
        mapped.close()


@pytest.mark.parametrize("text", [None, "", "[]", '{"schema": "apiary.weights/v2"}'])
def test_a_lost_manifest_is_made_anew_from_what_the_hub_lists(
    run, hub, directory, store, files, commit, text
):
    manifest = directory / ".apiary-manifest.json"
    manifest.unlink()
    if text is not None:
        manifest.write_text(text)
    damage(directory, "hash")
    code = "MISSING" if text is None else "INVALID"
    assert run(commit, action="verify")["findings"][0]["code"] == f"WEIGHTS-MANIFEST-{code}"
    assert run(commit, action="repair")["fetched"] == [SHARD]
    assert published(store, commit) == files
    assert not run(commit, action="verify", hashes=True).get("failed")


def test_a_manifest_of_another_revision_is_not_believed(run, directory, commit, files, store):
    manifest = directory / ".apiary-manifest.json"
    document = json.loads(manifest.read_text())
    manifest.unlink()
    manifest.write_text(json.dumps({**document, "revision": "0" * 40}))
    assert run(commit)["changed"]
    assert json.loads(manifest.read_text())["revision"] == commit


def test_repair_without_the_hub_says_so_and_leaves_all(refused, hub, directory, commit):
    damage(directory, "missing")
    before = snapshot(directory)
    hub.faults = {SHARD: hub_double.Fault(status=500, times=99)}
    assert refused(commit, action="repair") == "WEIGHTS-FETCH-SERVER"
    assert snapshot(directory) == before


def test_repair_when_the_hub_has_other_content_now(refused, hub, directory, commit):
    damage(directory, "missing")
    hub.faults = {SHARD: hub_double.Fault(body="flip", times=99)}
    assert refused(commit, action="repair") == "WEIGHTS-FETCH-HASH"


@pytest.mark.parametrize("action", ["verify", "repair"])
def test_there_is_no_current_revision(refused, action):
    assert refused(action=action) == "WEIGHTS-PUBLISH-REVISION"


def test_verify_of_what_is_not_published(refused, store):
    assert refused("0" * 40, action="verify") == "WEIGHTS-MANIFEST-MISSING"
    assert not store.exists()


def test_repair_keeps_to_what_was_chosen(run, store, commit):
    run(commit, allow_patterns=["*.json"])
    (store / REPOSITORY / commit / "config.json").unlink()
    assert run(commit, action="repair")["fetched"] == ["config.json"]
    assert set(published(store, commit)) == {"config.json", "tokenizer/vocab.json"}
    assert not run(commit, allow_patterns=["*.json"])["changed"]
