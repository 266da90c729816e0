# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes a level INVALID, FAILED or SLO_MISS, and what is only said."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import SelfTest, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.validity.evaluate import (
    CHECKS,
    LIMITS,
    RULES,
    evaluate,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import explanation
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from support.bench.raw import (
    BREAKS,
    LOAD,
    OPEN,
    broken,
    changed,
    failing,
    metrics_text,
    raw,
    scrape,
    self_test,
    shard,
)

SLO = (Limit("ttft", "p90", 2.0), Limit("tpot", "p90", 0.05))


def codes(level, severity=None):
    return [item.code for item in level.findings if severity in (None, item.severity)]


@pytest.mark.parametrize("load", [LOAD, OPEN], ids=["closed", "open"])
def test_a_level_that_breaks_nothing_is_ok(load):
    level = evaluate(raw(load), SLO, "raw/a.json")
    assert (level.status, level.findings, level.missed, level.raw) == ("OK", (), (), "raw/a.json")
    assert level.measured.steady
    assert level.load == load


@pytest.mark.parametrize("rule", BREAKS)
def test_each_broken_rule_alone_makes_a_level_invalid(rule):
    level = evaluate(broken(rule), ())
    assert level.status == "INVALID"
    assert codes(level, "error") == [RULES[rule]["code"]]


def test_every_rule_that_invalidates_has_a_case_here():
    # `errors` and the slacks are told apart below.
    beside = {"errors", "failed", "input_slack", "self_test_share"}
    errors = {
        name for name, rule in RULES.items() if explanation(rule["code"])["severity"] == "error"
    }
    assert errors - beside == set(BREAKS)


def test_every_documented_rule_is_checked():
    with_another = {"failed", "input_slack", "self_test_share", "engine_ttft_slack"}
    assert set(RULES) - with_another == set(CHECKS)


def test_one_failed_request_of_many_is_invalid_and_more_are_failed():
    few = evaluate(failing(1, replace(LOAD, requests=240)), SLO)
    assert (few.status, codes(few)) == ("INVALID", ["BENCH-ERRORS"])
    many = evaluate(failing(2, replace(LOAD, requests=240)), SLO)
    assert (many.status, codes(many)) == ("FAILED", ["BENCH-ERRORS"])
    assert "2 of 240 requests failed" in many.findings[0].message
    assert "ServerDisconnectedError: Server disconnected" in many.findings[0].message


def test_a_level_whose_every_request_failed_has_no_numbers():
    level = evaluate(failing(80), SLO)
    assert (level.status, level.measured) == ("FAILED", None)


def test_a_missed_limit_is_named_and_only_that():
    level = evaluate(raw(), (*SLO, Limit("tpot", "p50", 0.019), Limit("e2el", "p99", 0.3)))
    assert level.status == "SLO_MISS"
    assert [limit.metric for limit in level.missed] == ["tpot", "e2el"]


def test_an_invalid_level_is_not_called_a_miss_but_tells_it():
    level = evaluate(raw(exit_codes=(1,)), (Limit("tpot", "p50", 0.019),))
    assert (level.status, len(level.missed)) == ("INVALID", 1)


def test_a_result_that_cannot_be_read_is_invalid_with_the_reason():
    level = evaluate(raw(shards=(), exit_codes=(1,), log="OSError: no tokenizer"), SLO)
    assert (level.status, level.measured) == ("INVALID", None)
    assert codes(level) == ["BENCH-RESULT", "BENCH-EXIT"]
    assert "no tokenizer" in level.findings[0].message


def test_a_process_that_died_leaves_a_level_incomplete(monkeypatch):
    monkeypatch.setitem(LIMITS, "concurrency", 0)
    level = evaluate(raw(shards=(shard(40, 4),), exit_codes=(0, -9)), ())
    assert level.status == "INVALID"
    assert codes(level, "error") == ["BENCH-EXIT", "BENCH-INCOMPLETE", "BENCH-REQUESTS"]
    assert "process 1 with -9" in level.findings[0].message


def test_the_study_s_artefact_is_refused():
    load = replace(LOAD, requests=450, concurrency=1000)
    level = evaluate(raw(load, (shard(450, 1000),), cpu_seconds=None), ())
    assert level.status == "INVALID"
    assert codes(level, "error") == ["BENCH-REQUESTS", "BENCH-CONCURRENCY"]
    assert level.measured.achieved_concurrency == pytest.approx(450, rel=0.1)


def test_a_workload_that_says_so_may_share_prompts_and_is_marked():
    cached = (scrape(80, cached=80 * 60),)
    prefix = Workload("p", 100, 20, "prefix", prefixes=4, prefix_tokens=64)
    level = evaluate(raw(replace(LOAD, workload=prefix), metrics=cached), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-CACHED"])
    less = replace(prefix, prefix_tokens=32)
    assert (
        codes(evaluate(raw(replace(LOAD, workload=less), metrics=cached), ()))[0] == "BENCH-REPEATS"
    )


def test_cached_prompt_tokens_are_not_in_the_total_rate():
    prefix = Workload("p", 100, 20, "prefix", prefixes=4, prefix_tokens=64)
    measured = evaluate(
        raw(replace(LOAD, workload=prefix), metrics=(scrape(80, cached=4000),)), ()
    ).measured
    assert measured.cached_tokens == 3200
    rate = measured.request_rate
    assert measured.total_token_rate == pytest.approx(
        rate * (100 + 20) - 3200 / measured.wall_seconds
    )


def test_warm_ups_of_vllm_s_client_are_one_prompt_and_no_repeats_of_the_load():
    # 8 warm-ups with the first prompt: 8 of 88 prompts come from the cache.
    warmed = raw(replace(LOAD, warmups=8), metrics=(scrape(88, cached=800),))
    assert evaluate(warmed, ()).status == "OK"
    assert codes(evaluate(replace(warmed, backend="builtin"), ())) == ["BENCH-REPEATS"]


def test_a_preempted_request_s_own_prompt_is_no_repeat_where_the_engine_counts_it():
    preempted = raw(version="0.11.0", metrics=(scrape(80, preemptions=8, cached=700),))
    assert codes(evaluate(preempted, ()), "error") == []
    assert codes(evaluate(replace(preempted, version="0.32.0"), ()), "error") == ["BENCH-REPEATS"]


def test_a_version_without_warm_ups_is_told():
    level = evaluate(raw(replace(LOAD, warmups=8), version="0.11.0"), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-UNWARMED"])


def test_what_is_not_known_is_said_and_not_held_against_the_level():
    level = evaluate(raw(metrics=(), self_test=None, cpu_seconds=None), ())
    assert (level.status, codes(level, "warning")) == ("OK", ["BENCH-UNTESTED", "BENCH-UNCHECKED"])


def test_a_client_without_starts_is_judged_whole_and_told():
    result = shard()
    for key in ("start_times", "latencies", "queue_times", "failed"):
        del result[key]
    level = evaluate(raw(version="0.14.1", shards=(result,)), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-UNSTEADY"])
    assert not level.measured.steady
    assert level.measured.ttft.count == 80


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"preemptions": 3}, "BENCH-PREEMPTED"),
        ({"kv": 0.97}, "BENCH-KV-FULL"),
        ({"queue": 0.3}, "BENCH-QUEUED"),
    ],
)
def test_what_the_engine_says_of_its_limits_is_a_fact_beside_the_numbers(change, code):
    level = evaluate(raw(metrics=(scrape(80, **change),)), ())
    assert (level.status, codes(level, "info")) == ("OK", [code])


def test_pieces_of_several_tokens_are_told():
    result = shard()
    result["itls"] = [[0.38 / 10] * 10 for _request in range(80)]
    level = evaluate(raw(shards=(result,)), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-BUNDLED"])
    assert level.measured.tpot.p50 == pytest.approx(0.02)


def test_pieces_that_were_held_up_and_came_together_are_told():
    result = shard()
    result["ttfts"] = [0.48] * 80
    result["itls"] = [[2e-6] * 19 for _request in range(80)]
    level = evaluate(raw(shards=(result,), metrics=(scrape(80, ttft=0.48),)), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-CLUMPED"])
    assert "at most 2 us" in level.findings[0].message


def test_a_client_far_from_the_engine_s_own_ttft_is_a_warning():
    level = evaluate(raw(metrics=(scrape(80, ttft=0.05),)), ())
    assert (level.status, codes(level)) == ("OK", ["BENCH-ENGINE-TTFT"])


def test_the_self_test_is_held_to_a_share_of_a_short_limit():
    result = raw(self_test=self_test(0.006))
    assert evaluate(result, (Limit("ttft", "p90", 0.2),)).status == "OK"
    level = evaluate(result, (Limit("ttft", "p90", 0.11),))
    assert (level.status, codes(level)) == ("INVALID", ["BENCH-SELF-TEST"])
    assert "5% of the SLO's 0.11 s" in level.findings[0].message


def test_the_burst_at_the_start_of_a_self_test_does_not_count():
    burst = shard(40, 8, 0.101)
    burst["ttfts"][:8] = [0.5] * 8
    level = evaluate(raw(self_test=SelfTest(0.1, 0.02, (burst,), (0,))), ())
    assert (level.status, level.client.ttft_error_p90) == ("OK", pytest.approx(0.001))


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (SelfTest(0.1, 0.02, (), (1,)), "ended with 1"),
        (SelfTest(0.1, 0.02, ({},), (0,)), "the result has no completed"),
        (SelfTest(0.1, 0.02, (), (0,)), "it measured no TTFT"),
        (SelfTest(0.1, 0.02, (failing(3).shards[0],), (0,)), "Server disconnected"),
    ],
)
def test_a_failed_self_test_shows_nothing(test, told):
    level = evaluate(raw(self_test=test), ())
    assert (level.status, codes(level)) == ("INVALID", ["BENCH-SELF-TEST"])
    assert told in level.findings[0].message


def test_a_prompt_may_be_off_by_what_a_tokenizer_adds():
    short = replace(LOAD, workload=Workload("16/20", 16, 20))
    assert evaluate(changed(raw(short), input_lens=[17] * 80), ()).status == "OK"
    assert evaluate(changed(raw(short), input_lens=[19] * 80), ()).status == "INVALID"


def test_an_old_client_s_own_count_of_prompts_is_not_believed_before_the_engine_s():
    engine = (scrape(80, prompt=1000 + 80 * 66),)
    level = evaluate(raw(version="0.19.1", metrics=engine), ())
    assert codes(level, "error") == ["BENCH-INPUT"]
    assert "66.0 tokens" in level.findings[0].message
    # With warm-ups in the engine's sum it is not known what the load's own were.
    warmed = raw(replace(LOAD, warmups=4), version="0.19.1", metrics=engine)
    assert evaluate(warmed, ()).status == "OK"


def test_a_mixed_load_s_answers_may_have_any_part_s_length(monkeypatch):
    monkeypatch.setitem(LIMITS, "concurrency", 0.5)
    parts = (Workload("a", 80, 20), Workload("b", 120, 40))
    load = replace(LOAD, workload=Workload("mixed", 100, 30, "mixed", parts=parts))
    shards = (shard(40, 4, workload=parts[0]), shard(40, 4, workload=parts[1]))
    assert codes(evaluate(raw(load, shards), ()), "error") == []
    shards = (shards[0], shard(40, 4, workload=Workload("c", 120, 41)))
    assert codes(evaluate(raw(load, shards), ()), "error") == ["BENCH-OUTPUT"]


def test_a_client_that_says_what_it_requested_is_held_to_that():
    load = replace(LOAD, workload=Workload("s", 100, 20, "sessions", turns=2))
    requested = {"asked_input_lens": [100, 150] * 40, "asked_output_lens": [20] * 80}
    good = changed(raw(load, backend="builtin"), input_lens=[100, 150] * 40, **requested)
    assert evaluate(good, ()).status == "OK"
    bad = changed(good, input_lens=[100, 140] * 40)
    assert codes(evaluate(bad, ()), "error") == ["BENCH-INPUT"]
    requested["asked_output_lens"] = [20] * 70 + [21] * 10
    assert codes(evaluate(changed(good, **requested), ()), "error") == ["BENCH-OUTPUT"]


def test_pictures_count_by_the_model_s_own_rules():
    load = replace(LOAD, workload=Workload("v", 100, 20, "images", images=1, image_pixels=(64, 64)))
    assert evaluate(changed(raw(load), input_lens=[700] * 80), ()).status == "OK"


def test_an_engine_whose_metrics_are_gone_has_stopped():
    level = evaluate(raw(metrics=(replace(scrape(80), after=None),)), ())
    assert codes(level, "error") == ["BENCH-RESTARTED"]


def test_a_second_engine_s_cache_is_counted():
    other = replace(scrape(80), url="http://f/metrics", after=metrics_text(9000, 2000, count=90))
    assert codes(evaluate(raw(metrics=(scrape(80), other)), ()), "error") == ["BENCH-REPEATS"]


def test_a_rate_that_is_not_stretched_may_be_off_by_chance():
    # Up to 0.10.1 the client drew each gap by itself: 120 of them have a deviation of 9 %.
    assert codes(evaluate(replace(broken("rate"), version="0.9.2"), ()), "error") == []


def test_a_warm_up_only_has_to_be_answered():
    load = replace(LOAD, phase="warmup", requests=8)
    assert evaluate(raw(load, metrics=(), self_test=None), SLO).findings == ()
    assert evaluate(failing(4, load), SLO).status == "FAILED"


def test_gpus_are_summed_up_by_their_address():
    first, second = evaluate(raw(), ()).gpus
    assert (first.key, second.key) == ("0000:05:00.0", "0000:26:00.0")
    # Of the steady state, as the rates are: the sample at its beginning is of the ramp.
    assert (first.power_w_mean, first.power_w_max) == (701.0, 701.0)
    assert (first.clock_mhz_mean, first.clock_mhz_min) == (2099.0, 2099.0)


def test_without_metrics_the_answers_own_usage_tells_of_repeated_prompts():
    def told(cached):
        one = shard(80, 8) | {"cached_tokens": cached}
        return evaluate(raw(shards=(one,), backend="builtin", metrics=()), ())

    assert codes(told([0] * 80)) == []
    repeated = told([96] * 80)
    assert (repeated.status, codes(repeated, "error")) == ("INVALID", ["BENCH-REPEATS"])
    for unknown in ([None] * 80, [0] * 79 + [None], [0] * 79, None):
        assert codes(told(unknown)) == ["BENCH-UNCHECKED"]
        assert told(unknown).measured.cached_tokens is None
    # And they are no work of the engine's, as where its metrics tell.
    assert (told([0] * 80).measured.cached_tokens, repeated.measured.cached_tokens) == (0, 6144)
    assert repeated.measured.total_token_rate < told([0] * 80).measured.total_token_rate
