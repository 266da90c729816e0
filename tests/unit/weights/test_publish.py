# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator gets: a revision published, found right, and left alone the second time."""

import hashlib
import json
import os
import stat

import pytest
import yaml

from support.weights import REPOSITORY, ROOT, hub_double, published, snapshot

SKIP = [{"beside": "*.safetensors", "patterns": ["*.bin", "original/"]}]


def test_a_published_revision_is_what_the_hub_has(run, store, files, commit):
    result = run(commit)
    assert result["changed"]
    assert result["path"] == str(store / REPOSITORY / commit)
    assert published(store, commit) == files


def test_the_manifest_tells_size_and_hash_of_every_file(run, store, files, commit):
    run(commit)
    text = (store / REPOSITORY / commit / ".apiary-manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["schema"] == "apiary.weights/v1"
    assert (manifest["repository"], manifest["revision"]) == (REPOSITORY, commit)
    assert manifest["total_bytes"] == sum(len(one) for one in files.values())
    assert manifest["files"] == [
        {"path": path, "size": len(one), "sha256": hashlib.sha256(one).hexdigest()}
        for path, one in sorted(files.items())
    ]


def test_nobody_may_write_what_is_published_and_all_may_read_it(run, store, commit):
    before = os.umask(0o077)
    try:
        run(commit)
    finally:
        os.umask(before)
    directory = store / REPOSITORY / commit
    modes = {stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*") if path.is_file()}
    assert modes == {0o444}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o555
    assert stat.S_IMODE((directory / "tokenizer").stat().st_mode) == 0o555
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.parents[:3]} == {0o755}


def test_current_points_to_the_revision_from_wherever_it_is_mounted(run, store, commit):
    run(commit)
    assert os.readlink(store / REPOSITORY / "current") == commit


def test_current_can_be_left_alone_and_flipped_later_without_fetching(run, hub, store, commit):
    run(commit, make_current=False)
    assert not (store / REPOSITORY / "current").exists()
    asked = len(hub.asked)
    result = run(commit)
    assert result["changed"]
    assert os.readlink(store / REPOSITORY / "current") == commit
    assert len(hub.asked) == asked


def test_second_run_changes_nothing_and_asks_and_reads_nothing(
    run, hub, store, commit, monkeypatch
):
    run(commit)
    before, asked = snapshot(store), len(hub.asked)
    monkeypatch.setattr(
        "ansible_collections.apiary.instinct.plugins.module_utils.weights.manifest.hash_file",
        lambda *_arguments: pytest.fail("a file was read"),
    )
    assert not run(commit, token_file=os.devnull)["changed"]
    assert snapshot(store) == before
    assert len(hub.asked) == asked


def test_check_mode_tells_what_would_be_fetched_and_writes_nothing(run, hub, store, files, commit):
    result = run(commit, check_mode=True)
    assert result["changed"]
    assert result["fetched"] == sorted(files)
    assert result["fetched_bytes"] == sum(len(one) for one in files.values())
    assert f"current -> {commit}\n" in result["diff"]["after"]
    assert f"{commit}/config.json  {len(files['config.json'])}\n" in result["diff"]["after"]
    assert result["diff"]["before"] == ""
    assert not store.exists()
    assert hub.stored == []


def test_check_mode_after_publishing_predicts_nothing(run, commit):
    run(commit)
    result = run(commit, check_mode=True)
    assert not result["changed"]
    assert result["diff"]["before"] == result["diff"]["after"]


@pytest.mark.parametrize("name", ["main", "v1.0", "refs/pr/1"])
def test_a_branch_is_refused_with_the_commit_to_pin(run, hub, store, files, name):
    commit = hub.add(REPOSITORY, files, ref=name)
    result = run(name)
    assert result["findings"][0]["code"] == "WEIGHTS-FETCH-UNPINNED"
    assert f"weights_revision={commit}" in result["findings"][0]["remedy"]
    assert not (store / REPOSITORY).exists()


def test_a_branch_that_is_allowed_is_published_as_its_commit(run, store, files, commit):
    result = run("main", allow_unpinned=True)
    assert result["revision"] == commit
    assert published(store, commit) == files
    assert not run("main", allow_unpinned=True)["changed"]


def test_formats_beside_safetensors_are_skipped(run, store, files, commit):
    run(commit, skip=SKIP)
    expected = set(files) - {"pytorch_model.bin", "original/consolidated.00.pth"}
    assert set(published(store, commit)) == expected


def test_the_only_format_is_not_skipped(run, hub, store):
    commit = hub.add(REPOSITORY, {"pytorch_model.bin": b"weights", "config.json": b"{}"})
    run(commit, skip=SKIP)
    assert set(published(store, commit)) == {"pytorch_model.bin", "config.json"}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({"allow_patterns": ["*.json"]}, {"config.json", "tokenizer/vocab.json"}),
        ({"allow_patterns": ["tokenizer/"]}, {"tokenizer/vocab.json"}),
        (
            {"allow_patterns": ["*.json", "*.bin"], "ignore_patterns": ["tokenizer/*"]},
            {"config.json", "pytorch_model.bin"},
        ),
    ],
)
def test_patterns_choose_as_the_hub_s_tools_do(run, store, commit, patterns, expected):
    run(commit, **patterns)
    assert set(published(store, commit)) == expected


def test_patterns_that_leave_nothing_are_refused(refused, commit, store):
    assert refused(commit, allow_patterns=["*.gguf"]) == "WEIGHTS-FETCH-NOTHING"
    assert not (store / REPOSITORY).exists()


def test_wider_patterns_add_files_to_a_published_revision(run, hub, store, commit):
    run(commit, allow_patterns=["*.json"])
    inode = (store / REPOSITORY / commit / "config.json").stat().st_ino
    result = run(commit, allow_patterns=["*.json", "*.bin"])
    assert result["fetched"] == ["pytorch_model.bin"]
    assert (store / REPOSITORY / commit / "config.json").stat().st_ino == inode
    assert not run(commit, allow_patterns=["*.json", "*.bin"])["changed"]


def test_narrower_patterns_take_nothing_away_and_are_settled_at_once(run, store, commit, files):
    run(commit)
    assert run(commit, allow_patterns=["*.json"])["fetched"] == []
    assert published(store, commit) == files
    assert not run(commit, allow_patterns=["*.json"])["changed"]


def test_another_revision_becomes_current_and_the_first_one_stays(run, hub, store, files, commit):
    run(commit)
    second = hub.add(REPOSITORY, {**files, "config.json": b'{"v": 2}'})
    run(second)
    assert os.readlink(store / REPOSITORY / "current") == second
    assert published(store, commit) == files


def test_the_diff_shows_that_current_moves(run, hub, files, commit):
    run(commit)
    second = hub.add(REPOSITORY, {**files, "config.json": b'{"v": 2}'})
    diff = run(second, check_mode=True)["diff"]
    assert diff["before"].startswith(f"current -> {commit}\n")
    assert diff["after"].startswith(f"current -> {second}\n")


def test_a_file_made_writable_is_sealed_again(run, store, commit):
    run(commit)
    place = store / REPOSITORY / commit / "config.json"
    place.chmod(0o644)
    assert run(commit, check_mode=True)["changed"]
    assert run(commit)["changed"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o444
    assert not run(commit)["changed"]


def test_a_touched_file_is_hashed_once_and_sealed_again(run, hub, store, commit):
    run(commit)
    os.utime(store / REPOSITORY / commit / "config.json")
    result = run(commit)
    assert result["changed"]
    assert result["fetched"] == []
    assert not run(commit)["changed"]


@pytest.mark.parametrize("name", ["gpt2", "a/b/c", "../etc", "org/..", "-x/y", "a b/c", ""])
def test_a_wrong_repository_name_is_refused(refused, commit, name):
    assert refused(commit, repository=name) == "WEIGHTS-PUBLISH-REPOSITORY"


@pytest.mark.parametrize(
    "path", ["../escape.json", "/etc/passwd", "a/../../b", ".apiary-manifest.json", "a\nb", "a//b"]
)
def test_a_listing_that_leads_out_of_the_store_is_refused(refused, hub, store, path):
    commit = hub.add(REPOSITORY, {path: b"x"})
    assert refused(commit) == "WEIGHTS-FETCH-LISTING"
    assert not (store / REPOSITORY).exists()


def test_two_runs_do_not_work_on_one_repository(run, store, commit):
    from ansible_collections.apiary.instinct.plugins.module_utils.weights.store import (
        Shelf,
        locked,
    )

    with locked(Shelf(str(store), REPOSITORY)):
        result = run(commit)
    assert result["findings"][0]["code"] == "WEIGHTS-PUBLISH-BUSY"
    assert f"process {os.getpid()}" in result["msg"]
    assert run(commit)["changed"]


def test_the_double_lists_in_pages(hub, commit, run):
    run(commit)
    assert sum("cursor=" in one.path for one in hub.asked) >= 2
    assert len(hub_double.model()) > hub_double.PAGE


def test_the_lab_knows_the_commits_that_the_double_serves(hub):
    told = yaml.safe_load((ROOT / "tests/lab/hub/commits.yml").read_text())["hub_commits"]
    assert told == {
        name: hub.add(REPOSITORY, hub_double.model(seed=name.encode())) for name in told
    }
