# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers that no rule could check, or that weaker rules made, are never told without saying so."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.capacity import capacity
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    compare,
    regression,
    unanswered,
    unproven,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report

from support.bench.documents import DP2, TP8, bench, failed, invalid

STEPS = (1, 8, 64)


def marked(made, code, every=1):
    """The same result, a warning on every so many of its levels."""
    note = Finding.from_fields(
        code=code,
        severity="warning",
        subject="level",
        message="nobody knows",
        remedy="look",
        source=None,
    )
    return replace(
        made,
        levels=tuple(
            replace(one, findings=(*one.findings, note)) if place % every == 0 else one
            for place, one in enumerate(made.levels)
        ),
    )


def weaker(made):
    return replace(made, environment=made.environment | {"rules": {"requests_least": 20}})


A, B = (
    bench(name, curve, steps=STEPS, open_loop=False) for name, curve in (("A", TP8), ("B", DP2))
)


def codes(found):
    return [finding.code for finding in found.findings]


def test_what_every_rule_was_checked_for_is_proven():
    assert unproven([A, B]) == ()
    verdict = compare([A], [B])
    assert (verdict.published, codes(verdict)) == (True, [])


@pytest.mark.parametrize("code", ["BENCH-UNCHECKED", "BENCH-UNTESTED"])
def test_a_verdict_on_unchecked_levels_is_not_to_be_published(code):
    verdict = compare([A], [marked(B, code, every=4)])
    assert (verdict.verdict, verdict.published) == ("better", False)
    assert codes(verdict) == ["BENCH-UNPROVEN"]
    assert code in verdict.findings[0].message
    assert verdict.findings[0].subject == "B"


def test_a_warm_up_or_an_invalid_level_needs_no_proof():
    made = marked(B, "BENCH-UNCHECKED")
    levels = tuple(
        replace(one, load=replace(one.load, phase="warmup")) if place % 2 else invalid(one)
        for place, one in enumerate(made.levels)
    )
    assert unproven([replace(made, levels=levels)]) == ()


def test_results_by_other_rules_are_told_apart():
    verdict = compare([A], [weaker(B)])
    assert "rules" in [one.what for one in verdict.differs]
    assert codes(verdict) == ["BENCH-UNPROVEN"]
    assert "requests_least=20" in verdict.findings[0].message
    with pytest.raises(ApiaryError, match="BENCH-MIXED"):
        compare([A], [B, weaker(B)])
    assert regression([B], [weaker(B)]).verdict is None


def test_hosts_by_unchecked_levels_carry_the_warning():
    assert "BENCH-UNPROVEN" in codes(capacity([marked(B, "BENCH-UNTESTED")], 100.0))
    assert "BENCH-UNPROVEN" not in codes(capacity([B], 100.0))


def test_the_headline_says_it_in_the_same_sentence():
    report = make_report([A, marked(B, "BENCH-UNCHECKED")])
    assert report.headline.text.endswith(
        "Not to be published: not every rule was checked or kept for B."
    )
    assert "BENCH-UNPROVEN" in codes(report)
    assert "published" not in make_report([A, B]).headline.text


def test_a_benchmark_answers_or_says_that_it_does_not():
    assert unanswered(B) == ()
    assert unanswered(replace(B, searches=()))[0].severity == "error"
    searched_nothing = replace(B, searches=(), requested=replace(B.requested, phases=("scaling",)))
    assert unanswered(searched_nothing) == ()
    # Of two searches each has to end.
    half = replace(B, requested=replace(B.requested, search_by="both"))
    (open_end,) = unanswered(half)
    assert "by request rate did not end" in open_end.message
    arrivals = replace(B.searches[0], by="request_rate")
    assert unanswered(replace(half, searches=(*B.searches, arrivals))) == ()
    none = replace(B, levels=tuple(map(failed, B.levels)))
    (finding,) = unanswered(none)
    assert (finding.code, finding.severity) == ("BENCH-NO-ANSWER", "error")
