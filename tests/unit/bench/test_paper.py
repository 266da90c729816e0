# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The study's protocol as arXiv:2603.10031 has it, and what is wrong with it."""

import itertools
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import paper
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Level, Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding

SCALING = [5, 10, 25, 50, 75, 100, 150, 200]
SATURATION = [150, 200, 300, 500, 750, 1000]


def levels_of(multiplier, vision=False):
    """Return (concurrency, requests) of each phase."""
    phases = {}
    for load in paper.loads(paper.asked(multiplier, vision)):
        phases.setdefault(load.phase, []).append((load.concurrency, load.requests))
    return phases


def pool(load, base=0.03, slope=0.0001, text=329):
    """Return the requests of the study's client: slots that each take the next of them."""
    slots = min(load.concurrency, load.requests)
    took = load.workload.output_tokens * (base + slope * slots)
    return tuple(
        Request(
            latency=took,
            ttft=took,
            input_tokens=text,
            output_tokens=load.workload.output_tokens,
            start=number // slots * took,
        )
        for number in range(load.requests)
    )


def table(multiplier="thorough", **engine):
    rows = [
        (Level(load, "INVALID", None), paper.count(pool(load, **engine), 1.0))
        for load in paper.loads(paper.asked(multiplier))
    ]
    return paper.table(rows)


def phase(rows, name):
    return {row.load.concurrency: row for row in rows if row.load.phase == name}


@pytest.mark.parametrize(
    ("multiplier", "scaling", "saturation", "most"),
    [("quick", 50, 75, (100, 500)), ("standard", 100, 150, None), ("thorough", 300, 450, None)],
)
def test_counts_are_the_studys(multiplier, scaling, saturation, most):
    phases = levels_of(multiplier)
    ends = most or (200, 1000)

    assert list(phases) == ["warmup", "baseline", "scaling", "stress", "saturation"]
    assert phases["warmup"] == [(1, 1)]
    assert [slots for slots, requests in phases["baseline"]] == [1]
    assert phases["scaling"] == [(slots, scaling) for slots in SCALING if slots <= ends[0]]
    assert phases["saturation"] == [(slots, saturation) for slots in SATURATION if slots <= ends[1]]
    assert [slots for slots, requests in phases["stress"]] == [50, 25, 12]


def test_vision_has_images_and_its_own_stress():
    loads = list(paper.loads(paper.asked("thorough", vision=True)))
    stress = [
        (load.workload.images, load.concurrency, load.requests)
        for load in loads
        if load.phase == "stress"
    ]

    assert (3, 25, 300) in stress
    assert (5, 12, 300) in stress
    assert (1, 50, 450) in stress
    assert {load.workload.images for load in loads if load.phase == "saturation"} == {1}
    assert {load.workload.output_tokens for load in loads if load.phase == "saturation"} == {200}


def test_prompts_are_all_one_and_lengths_the_studys():
    loads = {load.phase: load.workload for load in paper.loads(paper.asked("standard"))}

    for name, lengths in [
        ("baseline", (500, 100)),
        ("scaling", (500, 200)),
        ("saturation", (500, 100)),
    ]:
        workload = loads[name]
        assert (workload.input_tokens, workload.output_tokens) == lengths
        assert (workload.kind, workload.prefixes) == ("prefix", 1)
        assert workload.prefix_tokens == workload.input_tokens
        assert workload.name.startswith("paper-")


def test_it_cools_down_between_phases_but_not_after_the_warm_up():
    loads = list(paper.loads(paper.asked("quick")))
    waits = [
        (before.phase, after.phase)
        for before, after in itertools.pairwise(loads)
        if paper.cooldown(before, after)
    ]

    assert waits == [("baseline", "scaling"), ("scaling", "stress"), ("stress", "saturation")]


def test_an_unknown_multiplier_is_refused():
    with pytest.raises(ApiaryError, match="BENCH-PAPER"):
        paper.asked("slow")


def counted(success=1.0, p99=1.0, rate=100.0):
    return paper.Counted(success, p99, p99, p99, rate, rate)


@pytest.mark.parametrize(
    ("level", "baseline", "previous", "status"),
    [
        (counted(success=0.95), None, None, "OK"),
        (counted(success=0.949), None, None, "FAILING"),
        (counted(success=0.5, p99=9), 1.0, None, "FAILING"),
        (counted(p99=2.0), 1.0, None, "OK"),
        (counted(p99=2.01), 1.0, None, "DEGRADED"),
        (counted(p99=9), None, None, "OK"),
        (counted(rate=105), None, counted(), "OK"),
        (counted(rate=104.9), None, counted(), "SATURATED"),
        (counted(success=0.0, p99=None, rate=0.0), 1.0, None, "FAILING"),
    ],
)
def test_status_rules_are_the_studys(level, baseline, previous, status):
    assert paper.label(level, baseline, previous) == status


def test_status_is_relative_to_the_phase():
    rows = table()
    saturation = phase(rows, "saturation")

    # Two times the latency of the baseline is DEGRADED in scaling, and nothing in other phases.
    assert {row.status for row in phase(rows, "scaling").values()} == {"DEGRADED"}
    assert {row.status for row in phase(rows, "stress").values()} == {"OK"}
    assert saturation[150].status == "OK"
    assert [saturation[slots].status for slots in (750, 1000)] == ["SATURATED", "SATURATED"]


def test_counting_takes_the_whole_wave_and_any_answer():
    requests = (
        Request(latency=1.0, ttft=1.0, input_tokens=10, output_tokens=5, start=0.0),
        Request(latency=3.0, ttft=3.0, input_tokens=10, output_tokens=0, start=1.0),
        Request(latency=None, ttft=None, input_tokens=0, output_tokens=0, error="timeout"),
        Request(latency=2.0, ttft=2.0, input_tokens=10, output_tokens=5, start=0.5),
    )
    found = paper.count(requests, 99.0)

    assert found.success == 0.75
    assert (found.p50, found.p99) == (2.0, pytest.approx(2.98))
    assert found.output_token_rate == pytest.approx(10 / 4)
    assert found.total_token_rate == pytest.approx(40 / 4)


def test_without_start_times_the_level_is_the_wall():
    found = paper.count((Request(latency=1.0, ttft=1.0, input_tokens=10, output_tokens=5),), 2.0)

    assert found.output_token_rate == 2.5


def test_the_plateau_is_named_as_the_clients():
    rows = table()
    found = {finding.code: finding for finding in paper.findings(rows)}
    saturation = phase(rows, "saturation")

    # The engine has no end: only the client stops at 450.
    assert saturation[500].total_token_rate == pytest.approx(saturation[1000].total_token_rate)
    assert [saturation[slots].effective_concurrency for slots in (300, 500, 1000)] == [
        300,
        450,
        450,
    ]
    message = found["BENCH-PAPER-ARTEFACT"].message
    assert "500, 750, 1000 sent 450 requests each" in message
    assert "measured 3 times, flat within 0.0%" in message
    assert "arXiv:2603.10031" in found["BENCH-PAPER-ARTEFACT"].source


def test_quick_runs_have_the_artefact_in_both_phases():
    subjects = [
        finding.subject
        for finding in paper.findings(table("quick"))
        if finding.code == "BENCH-PAPER-ARTEFACT"
    ]

    assert subjects == ["scaling paper-500/200", "saturation paper-500/100"]


def test_the_short_baseline_is_named():
    (found,) = [it for it in paper.findings(table()) if it.code == "BENCH-PAPER-BASELINE"]

    assert "answers of 200 tokens with a baseline of 100" in found.message


def test_each_level_says_why_it_is_invalid():
    rows = table()

    assert phase(rows, "saturation")[1000].invalid == (
        "only 450 requests for 1000 slots: the effective concurrency is 450",
        "0.45 requests a slot, expected 10: mostly ramp",
        "identical prompts: after the first, prefill is a cache hit",
    )
    assert phase(rows, "scaling")[5].invalid == (
        "identical prompts: after the first, prefill is a cache hit",
        "its baseline has 100 output tokens, the level 200",
    )
    assert rows[0].invalid == ()


def test_what_our_rules_say_stands_beside_the_studys_status():
    load = next(iter(paper.loads(paper.asked("quick"))))
    load = replace(load, phase="stress")
    finding = Finding("BENCH-Y", "error", "x", "prompts repeat", "r")
    note = Finding("BENCH-Z", "info", "x", "a note", "r")
    (row,) = paper.table([(Level(load, "INVALID", None, findings=(finding, note)), counted())])

    assert row.status == "OK"
    assert row.invalid[-1] == "BENCH-Y: prompts repeat"


def test_a_level_that_could_not_be_measured_is_failing():
    load = next(iter(paper.loads(paper.asked("quick"))))
    (row,) = paper.table([(Level(load, "FAILED", None), paper.count((), 0.0))])

    assert (row.status, row.success, row.p99, row.total_token_rate) == ("FAILING", 0.0, None, 0.0)
