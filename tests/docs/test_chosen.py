# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pages CI follows; no lab."""

from docs.chosen import ALWAYS, MOST, changed, chosen
from docs.pages import ALONE, SERVING

PATHS = ["docs/how-to/several-models.md", "docs/how-to/route-requests.md"]


def answers(**lines):
    """Return a git that knows refs by their merge base, and what differs from a commit."""

    def git(word, *rest):
        return lines.get({"merge-base": "/".join(rest[1:]), "diff": rest[1]}[word], [])

    return git


def test_what_changed_since_the_branch_left_main_is_followed():
    git = answers(**{"origin/main": ["abc"], "main": ["old"], "abc": PATHS})
    assert changed(git) == {"several-models", "route-requests"}


def test_without_a_main_what_is_not_committed_is_followed():
    assert changed(answers(HEAD=PATHS[:1])) == {"several-models"}
    assert changed(lambda *_words: []) == set()


def test_a_few_are_followed_at_every_run_in_the_pages_order():
    few = chosen(SERVING, set())
    assert few
    assert set(few) | set(chosen(ALONE, set())) == set(ALWAYS)
    more = chosen(SERVING, {"route-requests"})
    assert set(more) == {*few, "route-requests"}
    assert list(more) == sorted(more, key=SERVING.index)


def test_a_page_brings_what_it_needs_and_not_all_at_once():
    assert set(chosen(SERVING, {"mount-weights"})) >= {"publish-weights", "mount-weights"}
    assert len(chosen(SERVING, set(SERVING))) <= MOST + len(ALWAYS) + 1
