# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whenever the power goes: a ledger's past never changes, and what has no end is done again."""

import itertools
import json
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import (
    Asked,
    Entry,
    Ledger,
    begin,
    end,
    outcome_in,
    still_to_do,
)
from hypothesis import given
from hypothesis import strategies as st

OUTCOMES = ("done", "failed", "unreachable", "rolled back", "quarantined", "interrupted", "waiting")
# What happens to a host: a run begins with it and ends it somehow, or is killed before.
STORIES = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([*OUTCOMES, None])))


def attempts_in(ledger, run):
    """How often a run has begun with the host."""
    return sum(entry.run == run for entry in ledger.entries)


def told(story):
    """Every state of a ledger that a story goes through."""
    states = [Ledger("h1")]
    for number, (run, outcome) in enumerate(story):
        now = f"2026-11-22T{number:06d}Z"
        entry = Entry(run, attempts_in(states[-1], run) + 1, "ann", "ctl", Asked("site"), now)
        states.append(begin(states[-1], entry))
        if outcome is not None:
            states.append(end(states[-1], replace(entry, ended_at=now, outcome=outcome)))
    return states


@given(STORIES)
def test_what_has_ended_stays_as_it_is(story):
    states = told(story)
    for before, after in itertools.pairwise(states):
        closed = [entry for entry in before.entries if entry.ended_at is not None]
        assert list(after.entries[: len(closed)]) == closed
        assert len(after.entries) >= len(before.entries)
        # Only the last one can be open.
        assert all(entry.ended_at is not None for entry in after.entries[:-1])


@given(STORIES)
def test_a_run_that_is_killed_at_any_moment_does_again_what_has_no_end(story):
    for state in told(story):
        for run in "abc":
            todo, done = still_to_do(["h1"], {"h1": state}, run)
            assert done == (("h1",) if outcome_in(state, run) == "done" else ())
            assert todo == (() if done else ("h1",))


@given(STORIES)
def test_it_reads_as_it_was_written(story):
    last = told(story)[-1]
    assert from_document(Ledger, json.loads(dumps(last)), "ledger") == last
    assert [entry.attempt for entry in last.entries if entry.run == "a"] == list(
        range(1, attempts_in(last, "a") + 1)
    )
