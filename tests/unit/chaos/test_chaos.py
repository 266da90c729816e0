# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sequence of faults is its seed's alone, and what may fail is judged strictly."""

import itertools
import json
from collections import Counter

import pytest

from chaos.__main__ import main, recovery, run
from chaos.faults import Broken, Faults
from chaos.sequence import KINDS, Step, steps
from chaos.tally import Ended, Tally, lost
from loss.exchange import Outcome
from loss.load import Report
from loss.moment import Moment

PARTS = {
    "replica": ("gpu-001-0", "gpu-001-1", "gpu-002-0", "gpu-002-1"),
    "gpu": ("gpu-001", "gpu-002"),
    "router": ("router-001", "router-002"),
    "monitor": ("monitor-001",),
    "storage": ("storage-001",),
    "fleet": ("fleet",),
}
DECK = sum(kind.count for kind in KINDS.values())


def some(seed, count, **more):
    return list(itertools.islice(steps(seed, PARTS, **more), count))


def test_a_seed_decides_all_and_a_longer_run_begins_as_a_shorter_one():
    assert some(7, 200) == some(7, 200)
    assert some(7, 200)[:50] == some(7, 50)
    assert len({tuple(map(str, some(seed, 20))) for seed in range(50)}) == 50


def test_a_seed_means_the_same_next_year():
    """A seed that is noted in seeds.yml or in a report must be replayed by any Python."""
    assert list(map(str, some(1, 4, kinds=("kill-core", "cut-gpu", "drain")))) == [
        "1 kill-core gpu-002-1",
        "2 cut-gpu gpu-001 for 20.9 s",
        "3 kill-core gpu-001-0",
        "4 drain gpu-001 for 2.3 s",
    ]


def test_every_deck_has_every_kind_as_often_as_it_counts():
    for seed in range(20):
        made = some(seed, 3 * DECK)
        for start in range(0, len(made), DECK):
            dealt = Counter(step.kind for step in made[start : start + DECK])
            assert dealt == {name: kind.count for name, kind in KINDS.items()}


def test_every_step_befalls_what_its_kind_may_for_as_long_as_it_may():
    for step in some(3, 20 * DECK):
        least, most = KINDS[step.kind].seconds
        assert least <= step.seconds <= most
        assert 0 <= step.chance < 1
        assert step.part in PARTS[KINDS[step.kind].on]
    befallen = {step.part for step in some(3, 20 * DECK)}
    assert befallen >= {*PARTS["replica"], *PARTS["gpu"], *PARTS["router"]}


def test_what_a_lab_lacks_is_not_broken():
    lean = {part: PARTS[part][:1] for part in ("replica", "gpu", "router", "fleet")}
    kinds = {step.kind for step in itertools.islice(steps(1, lean), 3 * DECK)}
    assert kinds == {name for name, kind in KINDS.items() if kind.on not in ("monitor", "storage")}


def test_every_kind_can_be_made():
    assert {name for name in KINDS if not hasattr(Faults, name.replace("-", "_"))} == set()


def outcome(kind="ok", started=10.0, ended=11.0, replica="gpu-001-0", router="r1:8080"):
    return Outcome(1, kind, "", started, ended, replica=replica, router=router)


FAULT = Broken(replicas=frozenset({"gpu-001-0"}), cut=False)
MOMENT = Moment(10.5, 10.6)


@pytest.mark.parametrize(
    ("broken", "failed", "words"),
    [
        (FAULT, outcome("error"), None),
        (FAULT, outcome("error", replica=None), None),
        (FAULT, outcome("error", replica="gpu-002-0"), "elsewhere"),
        (FAULT, outcome("error", started=11.7, ended=12), "not in flight"),
        (FAULT, outcome("error", started=9, ended=10), "not in flight"),
        (FAULT, outcome("cut"), "without an error"),
        (FAULT, outcome("lost"), "without an error"),
        (Broken(replicas=FAULT.replicas), outcome("cut"), None),
        (Broken(routers=frozenset({"r1:8080"})), outcome("lost", replica=None), None),
        (Broken(routers=frozenset({"r1:8080"})), outcome("error", router="r2:8080"), "elsewhere"),
        (Broken(), outcome("error", replica=None), "nothing may"),
        (Broken(), outcome(), None),
    ],
)
def test_only_what_was_in_flight_on_what_broke_may_fail(broken, failed, words):
    problems = lost(broken, Report((failed, outcome())), MOMENT)
    assert (words is None) == (not problems)
    assert words is None or words in problems[0]


def ended(step, *outcomes, recovered=3.0, problems=()):
    return Ended(step, Report(outcomes), recovered, problems)


@pytest.fixture
def tally():
    first, second, third = some(5, 3, kinds=("kill-core", "cut-gpu"))
    made = Tally(5)
    made.ended = [
        ended(first, outcome(), outcome("error")),
        ended(second, outcome(), recovered=41.25),
        ended(third, outcome("cut"), outcome("cut"), recovered=None, problems=("not whole",)),
    ]
    return made


def test_the_report_counts_faults_requests_losses_and_the_longest_recovery(tally):
    made = json.loads(json.dumps(tally.document()))
    assert sum(made["faults"].values()) == made["steps"] == 3
    assert made["requests"] == 5
    assert made["outcomes"] == {"ok": 2, "refused": 0, "error": 1, "cut": 2, "lost": 0}
    assert sum(sum(counts.values()) for counts in made["losses"].values()) == 3
    assert made["longest_recovery"]["seconds"] == 41.2
    assert [one["problem"] for one in made["problems"]] == ["not whole"]
    assert made["replay"] == "make chaos SEED=5 STEPS=3"


def test_a_person_reads_the_same_and_how_to_see_it_again(tally):
    lines = tally.table().splitlines()
    assert lines[0].split()[:3] == ["fault", "times", "requests"]
    (row,) = [line for line in lines if line.startswith("all ")]
    assert row.split()[1:8] == ["3", "5", "2", "0", "1", "2", "0"]
    assert lines[-1] == "seed 5; again: make chaos SEED=5 STEPS=3"


@pytest.mark.parametrize(
    ("recovered", "minutes", "taken"), [(1.0, 9, 4), (None, 9, 1), (1.0, 2, 2)]
)
def test_a_run_ends_with_its_steps_its_time_or_what_is_never_whole(recovered, minutes, taken):
    tally, clock = Tally(1), itertools.count()
    sequence = some(1, 4)
    run(
        tally,
        sequence,
        lambda step: ended(step, outcome(), recovered=recovered),
        lambda: next(clock) >= minutes,
        lambda line: None,
    )
    assert [one.step for one in tally.ended] == sequence[:taken]


class Whole:
    """A fleet in which nothing shows."""

    def named(self, _group):
        return []

    def whole(self):
        return True


def test_a_fault_that_has_not_shown_yet_is_not_over():
    """A hang is found after seconds; until then all looks whole."""
    assert recovery(Whole(), Broken(), 90) is not None
    assert recovery(Whole(), Broken(felt=lambda: False), 0) is None


def test_a_kind_that_is_none_is_refused_before_anything_is_started(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "earthquake"])
    assert "earthquake" in capsys.readouterr().err


def test_a_step_says_what_it_does():
    assert str(Step(4, "cut-gpu", "gpu-001", 12.5, 0.1)) == "4 cut-gpu gpu-001 for 12.5 s"
    assert str(Step(5, "reload", "router-001", 0, 0.1)) == "5 reload router-001"
