# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that can go wrong on the way: one finding, nothing half-published, then it goes on."""

import errno
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.weights import fetch as weights_fetch

from support.weights import REPOSITORY, ROOT, hub_double, published

SHARD = "model-00001-of-00002.safetensors"
ALWAYS = 99


def fault(**arguments):
    return hub_double.Fault(**arguments)


def nothing_is_published(store):
    shelf = store / REPOSITORY
    names = {path.name for path in shelf.iterdir()} if shelf.exists() else set()
    return all(name.startswith(".partial-") for name in names)


@pytest.mark.parametrize("status", [429, 408, 500, 502, 503, 504])
@pytest.mark.parametrize("path", ["main", "recursive", "config.json", SHARD])
def test_what_passes_is_tried_again(run, hub, store, files, commit, status, path):
    path = {"recursive": f"/tree/{commit}", "main": "/revision/main"}.get(path, path)
    hub.faults = {path: fault(status=status, times=2)}
    assert run("main", allow_unpinned=True)["changed"]
    assert hub.faults[path].times == 0
    assert published(store, commit) == files


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "WEIGHTS-FETCH-RATE-LIMIT"),
        (500, "WEIGHTS-FETCH-SERVER"),
        (503, "WEIGHTS-FETCH-SERVER"),
        (400, "WEIGHTS-FETCH-REFUSED"),
        (401, "WEIGHTS-FETCH-UNAUTHORIZED"),
        (403, "WEIGHTS-FETCH-FORBIDDEN"),
        (404, "WEIGHTS-FETCH-NOT-FOUND"),
    ],
)
@pytest.mark.parametrize("path", ["tree", "config.json"])
def test_what_stays_ends_in_one_finding(
    run, refused, hub, store, files, commit, status, code, path
):
    path = f"/tree/{commit}" if path == "tree" else path
    hub.faults = {path: fault(status=status, times=ALWAYS)}
    assert refused(commit) == code
    assert nothing_is_published(store)
    hub.faults = {}
    assert run(commit)["changed"]
    assert published(store, commit) == files


def test_the_first_failure_ends_all(refused, hub, commit):
    hub.faults = {SHARD: fault(status=404, times=ALWAYS)}
    assert refused(commit, parallel=1) == "WEIGHTS-FETCH-NOT-FOUND"
    assert sum("/resolve/" in one.path for one in hub.asked) == 1


def test_what_will_not_pass_is_asked_once(refused, hub, commit):
    hub.faults = {"config.json": fault(status=404, times=ALWAYS)}
    refused(commit)
    assert sum(one.path.endswith("config.json") for one in hub.asked) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"RateLimit": '"api";r=0;t=9'}, 9),
        ({"Retry-After": "4000"}, 300),
    ],
)
def test_the_hub_says_how_long_to_wait(run, hub, commit, monkeypatch, headers, seconds):
    waits = []
    monkeypatch.setattr(
        weights_fetch.threading.Event, "wait", lambda _self, time=None: waits.append(time)
    )
    hub.faults = {"config.json": fault(status=429, headers=headers)}
    run(commit, parallel=1)
    assert seconds in waits


def test_waits_double(monkeypatch):
    waits = []
    patience = weights_fetch.Patience(retries=4, delay=2.0)
    monkeypatch.setattr(patience.stopped, "wait", lambda time: waits.append(time))
    problem = weights_fetch.TransientError(weights_fetch.store_problem("/x", OSError(28, "full")))
    for failures in range(1, 5):
        patience.wait(failures, problem)
    assert waits == [2.0, 4.0, 8.0, 16.0]
    with pytest.raises(weights_fetch.ApiaryError):
        patience.wait(5, problem)


def test_a_truncated_body_goes_on_where_it_ended(run, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="truncate", times=2)}
    run(commit)
    assert published(store, commit) == files
    asked = [one.offset for one in hub.stored if one.path.split("?")[0].endswith(SHARD)]
    assert asked == [0, 150_000, 225_000]


def test_a_body_that_never_ends_right_is_a_finding(run, refused, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="truncate", times=3)}
    assert refused(commit) == "WEIGHTS-FETCH-TRUNCATED"
    assert nothing_is_published(store)
    hub.stored.clear()
    run(commit)
    assert published(store, commit) == files
    # The failure may have ended other files on their way.
    assert [one.offset for one in hub.stored if SHARD in one.path] == [262_500]


def test_a_server_without_ranges_begins_anew(run, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="truncate", times=1)}
    run(commit, retries=0)
    hub.faults = {SHARD: fault(body="whole", times=1)}
    hub.stored.clear()
    run(commit)
    assert sum(SHARD in one.path for one in hub.stored) == 1
    assert hub.faults[SHARD].times == 0
    assert published(store, commit) == files


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_signature_is_made_anew_by_the_hub(run, hub, store, files, commit, status):
    path = f"{hashlib.sha256(files[SHARD]).hexdigest()}/{SHARD}"
    hub.faults = {path: fault(status=status, times=1)}
    run(commit)
    assert hub.faults[path].times == 0
    assert published(store, commit) == files
    assert sum(one.path.endswith(SHARD) for one in hub.asked) == 2


def test_one_wrong_bit_is_found_and_fetched_again(run, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="flip")}
    run(commit)
    assert hub.faults[SHARD].times == 0
    assert published(store, commit) == files


@pytest.mark.parametrize("name", [SHARD, "config.json"])
@pytest.mark.parametrize("body", ["flip", "long"])
def test_content_that_stays_wrong_is_a_finding_and_is_not_kept(
    run, refused, hub, store, files, commit, name, body
):
    """A large file is compared by the SHA-256 that LFS has, a small one by its git name."""
    hub.faults = {name: fault(body=body, times=ALWAYS)}
    assert refused(commit) == "WEIGHTS-FETCH-HASH"
    assert nothing_is_published(store)
    assert not list(store.rglob(f".partial-*/{name}"))
    hub.faults = {}
    run(commit)
    assert published(store, commit) == files


def test_a_part_that_was_damaged_on_disk_is_fetched_anew(run, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="truncate", times=1)}
    run(commit, retries=0)
    (part,) = store.rglob(f".apiary-incoming/{SHARD}")
    part.write_bytes(b"x" * part.stat().st_size)
    run(commit)
    assert published(store, commit) == files


def test_a_part_longer_than_the_file_is_fetched_anew(run, hub, store, files, commit):
    hub.faults = {SHARD: fault(body="truncate", times=1)}
    run(commit, retries=0)
    (part,) = store.rglob(f".apiary-incoming/{SHARD}")
    part.write_bytes(b"x" * 400_000)
    run(commit)
    assert published(store, commit) == files


def test_a_large_file_comes_in_parts(run, hub, store, files, commit, monkeypatch):
    monkeypatch.setattr(weights_fetch, "PART", 100_000)
    run(commit)
    assert published(store, commit) == files
    spans = [one.headers["range"] for one in hub.stored if SHARD in one.path]
    assert spans == ["bytes=0-99999", "bytes=100000-199999", "bytes=200000-299999"]


def test_a_portal_s_page_is_no_listing(refused, hub, commit):
    hub.faults = {f"/tree/{commit}": fault(body="html", times=ALWAYS)}
    assert refused(commit) == "WEIGHTS-FETCH-LISTING"


def test_nobody_listens(refused, commit):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert refused(commit, endpoint=endpoint) == "WEIGHTS-FETCH-NETWORK"


def test_a_silent_connection_is_given_up(refused, hub, store, commit):
    hub.faults = {SHARD: fault(body="stall", times=ALWAYS)}
    assert refused(commit, timeout=0.2, retries=1) == "WEIGHTS-FETCH-NETWORK"
    assert nothing_is_published(store)


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://x/", "http://", ""])
def test_an_endpoint_that_is_none_is_refused(refused, commit, endpoint):
    assert refused(commit, endpoint=endpoint) == "WEIGHTS-FETCH-ENDPOINT"


def test_a_mirror_may_lie_below_a_path(refused, hub, commit):
    assert refused(commit, endpoint=hub.endpoint + "/mirror/") == "WEIGHTS-FETCH-NOT-FOUND"
    assert hub.asked[-1].path.startswith("/mirror/api/models/")


def test_a_revision_that_is_not_there(refused, commit):
    assert refused("0" * 40) == "WEIGHTS-FETCH-NOT-FOUND"


# The token


@pytest.fixture
def token_file(tmp_path, hub):
    hub.token = "hf_secret"  # noqa: S105
    path = tmp_path / "token"
    path.write_text("hf_secret\n")
    path.chmod(0o400)
    return str(path)


def test_the_token_goes_to_the_hub_and_not_to_its_store(run, hub, store, files, commit, token_file):
    run(commit, token_file=token_file)
    assert published(store, commit) == files
    assert {one.headers.get("authorization") for one in hub.asked} == {"Bearer hf_secret"}
    assert {one.headers.get("authorization") for one in hub.stored} == {None}


def test_the_token_is_nowhere_in_what_is_told_or_written(run, hub, store, commit, token_file):
    told = json.dumps([run(commit, token_file=token_file), run("0" * 40, token_file=token_file)])
    assert "hf_secret" not in told
    assert not [
        path for path in store.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()
    ]


def test_a_signed_address_is_not_told(run, hub, commit):
    hub.faults = {SHARD: fault(status=500, times=ALWAYS)}
    assert "signature" not in json.dumps(run(commit))


def test_no_token_and_a_wrong_one(refused, hub, commit, tmp_path, token_file):
    assert refused(commit) == "WEIGHTS-FETCH-UNAUTHORIZED"
    wrong = tmp_path / "wrong"
    wrong.write_text("hf_other")
    wrong.chmod(0o600)
    assert refused(commit, token_file=str(wrong)) == "WEIGHTS-FETCH-UNAUTHORIZED"
    hub.gated = True
    assert refused(commit, token_file=token_file) == "WEIGHTS-FETCH-FORBIDDEN"


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "ключ"])
def test_a_file_without_a_token_is_refused_and_not_quoted(run, commit, tmp_path, content):
    path = tmp_path / "odd"
    path.write_text(content)
    path.chmod(0o600)
    result = run(commit, token_file=str(path))
    assert result["findings"][0]["code"] == "WEIGHTS-FETCH-TOKEN"
    assert "one line" in result["msg"] or "no text" in result["msg"]
    assert not content or content not in result["msg"]


@pytest.mark.parametrize("mode", [0o644, 0o440, 0o604])
def test_a_token_that_others_may_read_is_refused(run, hub, commit, token_file, mode):
    os.chmod(token_file, mode)
    assert f"{mode:04o}" in run(commit, token_file=token_file)["msg"]
    assert hub.asked == []


def test_a_token_does_not_travel_unencrypted(refused, commit, token_file):
    endpoint = "http://mirror.example"
    assert refused(commit, endpoint=endpoint, token_file=token_file) == "WEIGHTS-FETCH-TOKEN"


# The disk


def test_space_is_checked_before_anything_is_fetched(refused, hub, store, commit):
    assert refused(commit, reserve_bytes=2**60) == "WEIGHTS-FETCH-SPACE"
    assert hub.stored == []
    assert not (store / REPOSITORY).exists()


def test_what_is_at_hand_needs_no_space(run, hub, store, files, commit, monkeypatch):
    hub.faults = {SHARD: fault(body="truncate", times=1)}
    run(commit, retries=0, parallel=1)
    have = sum(
        path.stat().st_size
        for path in store.rglob(".partial-*/**/*")
        if path.is_file() and not path.name.startswith(".apiary-")
    )
    assert have >= 150_000
    free = sum(len(one) for one in files.values()) - have
    real = os.statvfs(store)
    answer = type("Status", (), {"f_bavail": free, "f_frsize": 1, "real": real})
    monkeypatch.setattr(os, "statvfs", lambda _path: answer)
    assert run(commit)["changed"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a megabyte."""
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", path], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this machine lets nobody mount")
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_disk_that_fills_up_on_the_way(refused, small_disk, commit, monkeypatch):
    from ansible_collections.apiary.instinct.plugins.module_utils.weights import (
        store as weights_store,
    )

    monkeypatch.setattr(weights_store, "check_space", lambda *_arguments: None)
    store = small_disk / "store"
    assert refused(commit, store=str(store)) == "WEIGHTS-FETCH-SPACE"
    assert nothing_is_published(store)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "WEIGHTS-FETCH-SPACE"),
        (errno.EDQUOT, "WEIGHTS-FETCH-SPACE"),
        (errno.EROFS, "WEIGHTS-PUBLISH-STORE"),
        (errno.EIO, "WEIGHTS-PUBLISH-STORE"),
    ],
)
def test_what_the_disk_says_is_no_matter_of_the_network(
    refused, store, commit, monkeypatch, number, code
):
    def fail(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(weights_fetch.Incoming, "write", fail)
    assert refused(commit) == code
    assert nothing_is_published(store)


def test_a_store_that_is_a_file_is_a_finding(refused, store, commit):
    store.write_text("")
    assert refused(commit) == "WEIGHTS-PUBLISH-STORE"


# Killed


def test_a_run_that_is_killed_leaves_nothing_half_published_and_goes_on(
    run, hub, store, files, commit
):
    hub.faults = {SHARD: fault(body="stall")}
    arguments = {"store": str(store), "repository": REPOSITORY, "revision": commit}
    told = {**arguments, "endpoint": hub.endpoint, "parallel": 1}
    module = "ansible_collections.apiary.instinct.plugins.modules.weights_publish"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    with subprocess.Popen(
        [sys.executable, "-m", module, json.dumps({"ANSIBLE_MODULE_ARGS": told})],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        assert hub.stalled.wait(120), process.stdout.read()
        process.send_signal(signal.SIGKILL)
    hub.release.set()
    assert nothing_is_published(store)
    hub.stored.clear()
    assert run(commit)["changed"]
    assert published(store, commit) == files
    names = {path.name for path in (store / REPOSITORY).iterdir()}
    assert names == {commit, "current"}


@pytest.mark.parametrize("step", ["write_durably", "seal", "sync_tree", "flip"])
def test_a_run_that_ends_while_it_publishes_is_finished_by_the_next(
    run, store, files, commit, monkeypatch, step
):
    from ansible_collections.apiary.instinct.plugins.module_utils.weights import (
        store as weights_store,
    )

    class KilledError(BaseException):
        pass

    def killed(*_arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(weights_store, step, killed)
        with pytest.raises(KilledError):
            run(commit)
    directory = Path(store / REPOSITORY / commit)
    assert directory.exists() == (step == "flip")
    assert not (store / REPOSITORY / "current").is_symlink()
    assert run(commit)["changed"]
    assert published(store, commit) == files
    assert stat.S_IMODE(directory.stat().st_mode) == 0o555
    assert not run(commit)["changed"]
