# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/tune.yml goes on with rollout.yml in the same run, where its facts are still there."""

from pathlib import Path

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"


class _Loader(yaml.SafeLoader):
    """Reads a playbook, whatever tags it has."""


_Loader.add_multi_constructor("!", lambda *_: None)


def nodes(value):
    """Yield each mapping of a document, the outer ones first."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict | list):
            yield from nodes(one)


def tasks(*patterns):
    for pattern in patterns:
        for path in sorted(PLAYBOOKS.glob(pattern)):
            yield from nodes(yaml.load(path.read_text(), Loader=_Loader))  # noqa: S506


@pytest.fixture(scope="module")
def kept():
    """What a host still has when the tuning is over: what was set or registered."""
    found = set()
    for one in tasks("tune.yml", "tasks/tune_*.yml"):
        found |= {one["register"]} if isinstance(one.get("register"), str) else set()
        assert (
            "ansible.builtin.set_fact" not in one
        )  # decisions and what they are made of are Python
    return found


def test_no_fact_of_a_tuning_hides_a_variable_of_the_rollout(kept):
    """A fact is stronger than `vars:`, so the rollout would serve what the last trial had."""
    assert {"__trial", "__taken", "__measured"} <= kept
    named = {
        name
        for one in tasks("rollout.yml", "tasks/rollout_*.yml")
        for name in one.get("vars") or ()
    }
    assert "__replicas" in named
    assert kept & named == set()


def test_the_reference_of_answers_is_read_before_a_host_is_drained_and_fails_no_trial():
    """What cannot be read says nothing about a trial, so it ends the run, not the candidate."""
    judges = [one for one in tasks("tasks/tune_look.yml") if "apiary.instinct.rollout" in one]
    (gate,) = judges
    assert gate["register"] == "__gate"
    assert "results" not in gate["apiary.instinct.rollout"]
    trial = list(tasks("tasks/tune_trial.yml"))
    assert "__gate" not in [one.get("register") for one in trial]
    (smoke,) = [one for one in trial if "apiary.instinct.replica_smoke" in one]
    assert smoke["apiary.instinct.replica_smoke"]["smoke"] == "{{ __gate.smoke }}"
