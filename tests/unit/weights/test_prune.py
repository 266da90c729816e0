# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Old revisions go, and none that somebody uses."""

import os

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.weights import store as weights_store
from hypothesis import given
from hypothesis import strategies as st

from support.weights import REPOSITORY, hub_double, snapshot

COMMITS = st.text("0123456789abcdef", min_size=40, max_size=40)
TIMES = st.sampled_from([f"2026-01-{day:02}T00:00:00Z" for day in range(1, 9)])


@pytest.fixture
def commits(run, hub, monkeypatch):
    """Five published revisions, the oldest first; the last one is current."""
    found = []
    for day in range(1, 6):
        monkeypatch.setattr(weights_store, "now", lambda day=day: f"2026-01-0{day}T00:00:00Z")
        found.append(hub.add(REPOSITORY, hub_double.model(size=100, seed=b"%d" % day)))
        run(found[-1])
    return found


def test_the_newest_stay(run, store, commits):
    result = run(action="prune", keep=2)
    assert result["removed"] == commits[:3]
    names = {path.name for path in (store / REPOSITORY).iterdir()}
    assert names == {*commits[3:], "current"}
    assert not run(action="prune", keep=2)["changed"]


def test_the_current_one_and_pinned_ones_stay_whatever_their_age(run, store, commits):
    run(commits[0])  # rolled back
    result = run(action="prune", keep=1, pinned=[commits[2]])
    assert result["removed"] == [commits[1], commits[3]]
    assert os.readlink(store / REPOSITORY / "current") == commits[0]


def test_check_mode_tells_and_leaves(run, store, commits):
    before = snapshot(store / REPOSITORY)
    result = run(action="prune", keep=2, check_mode=True)
    assert result["removed"] == commits[:3]
    assert sorted(result["diff"]["before"].split()) == sorted(commits)
    assert sorted(result["diff"]["after"].split()) == sorted(commits[3:])
    assert snapshot(store / REPOSITORY) == before


@pytest.mark.parametrize("keep", [0, -1])
def test_the_newest_stays_even_if_none_is_current(run, store, commits, keep):
    (store / REPOSITORY / "current").unlink()
    assert run(action="prune", keep=keep)["removed"] == commits[:-1]


@pytest.mark.parametrize("pin", ["main", "abc", "A" * 40])
def test_a_pin_that_protects_nothing_is_refused(refused, store, commits, pin):
    before = snapshot(store / REPOSITORY)
    assert refused(action="prune", pinned=[pin]) == "WEIGHTS-PUBLISH-PINNED"
    assert snapshot(store / REPOSITORY) == before


def test_a_directory_without_a_manifest_is_somebody_s(run, store, commits):
    place = store / REPOSITORY / commits[0]
    place.chmod(0o755)
    (place / ".apiary-manifest.json").unlink()
    assert commits[0] not in run(action="prune", keep=1)["removed"]
    assert place.exists()


def test_what_interrupted_runs_left_goes(run, store, commits):
    shelf = store / REPOSITORY
    (shelf / f".partial-{'0' * 40}" / "a").mkdir(parents=True)
    (shelf / f".removing-{'1' * 40}").mkdir()
    (shelf / "notes").mkdir()
    assert run(action="prune", keep=9)["removed"] == [
        f".partial-{'0' * 40}",
        f".removing-{'1' * 40}",
    ]
    assert (shelf / "notes").exists()


def test_a_removal_that_is_interrupted_leaves_no_half_revision(run, store, commits, monkeypatch):
    class KilledError(BaseException):
        pass

    def killed(*_arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(weights_store, "unseal", killed)
        with pytest.raises(KilledError):
            run(action="prune", keep=2)
    assert not (store / REPOSITORY / commits[0]).exists()
    assert run(action="prune", keep=2)["removed"][-1] == f".removing-{commits[0]}"
    assert {path.name for path in (store / REPOSITORY).iterdir()} == {*commits[3:], "current"}


@given(
    ages=st.dictionaries(COMMITS, TIMES, max_size=8),
    data=st.data(),
    keep=st.integers(1, 9),
)
def test_pruning_loses_nothing_in_use_and_settles(ages, data, keep):
    commits = st.sampled_from(sorted(ages)) if ages else st.none()
    current = data.draw(st.none() | commits)
    pinned = frozenset(data.draw(st.sets(commits)) - {None})
    gone = weights_store.doomed(ages, current, pinned, keep)
    left = {commit: time for commit, time in ages.items() if commit not in gone}
    assert not ({current} | pinned) & set(gone)
    assert len(left) >= min(keep, len(ages))
    assert all(ages[one] <= time for one in gone for time in sorted(left.values())[-keep:])
    assert weights_store.doomed(left, current, pinned, keep) == []
