# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's /metrics of every version to what it did during a level."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.module_utils.load.scrape import series_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.engine_metrics import (
    restarted,
    use_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import GpuSample, Scrape
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.validity.evaluate import gpus_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order

from support.bench.raw import metrics_text, raw, scrape

ROOT = Path(__file__).parents[3]


def test_series_are_read_by_name_and_labels():
    text = (
        "# TYPE a counter\n"
        "a 1\n"
        'a{x="1"} 2.5e3\n'
        'a{x="with } and \\" in it",y="2"} 3 1700000000\n'
        "bad line\n"
        "b NaN\n"
        "c +Inf\n"
        "d x\n"
    )
    assert series_of(text) == {
        ("a", ""): 1.0,
        ("a", '{x="1"}'): 2500.0,
        ("a", '{x="with } and \\" in it",y="2"}'): 3.0,
    }


def test_a_level_s_use_is_what_rose_between_the_readings():
    use = use_of(raw(metrics=(scrape(80, cached=2000, preemptions=3, queue=0.2, kv=0.7),)))
    assert (use.prompt_tokens, use.cached_tokens, use.preemptions) == (8000, 2000, 3)
    assert use.cache_hit_share == pytest.approx(0.25)
    assert (use.kv_usage_max, use.running_max, use.waiting_max) == (0.7, 8.0, 0.0)
    # Of the 90 requests of the engine's engine run 10 were before, and didn't wait.
    assert use.queue_seconds_mean == pytest.approx(0.2 * 90 / 80)
    assert use.ttft_mean == pytest.approx(0.1)


def test_engines_are_added_up_and_the_fullest_cache_counts():
    first, second = scrape(80, kv=0.3), replace(scrape(40, kv=0.8), url="http://f/metrics")
    use = use_of(raw(metrics=(first, second)))
    assert use.prompt_tokens == 8000 + 4000
    assert (use.kv_usage_max, use.running_max) == (0.8, 16.0)


def test_ranks_of_one_engine_are_added_up():
    before = 'vllm:prompt_tokens_total{engine="0"} 10\nvllm:prompt_tokens_total{engine="1"} 20\n'
    after = 'vllm:prompt_tokens_total{engine="0"} 110\nvllm:prompt_tokens_total{engine="1"} 320\n'
    assert use_of(raw(metrics=(Scrape("u", before, after),))).prompt_tokens == 400


def test_the_names_of_0_10_are_known():
    text = (
        'vllm:gpu_prefix_cache_queries_total{{m="m"}} {queries}\n'
        'vllm:gpu_prefix_cache_hits_total{{m="m"}} {hits}\n'
        'vllm:gpu_cache_usage_perc{{m="m"}} {kv}\n'
    )
    scraped = Scrape(
        "u", text.format(queries=0, hits=0, kv=0.1), text.format(queries=800, hits=80, kv=0.2)
    )
    use = use_of(raw(metrics=(scraped,)))
    assert (use.cached_tokens, use.kv_usage_max) == (80, 0.2)
    assert use.cache_hit_share == pytest.approx(0.1)


def test_what_an_engine_does_not_serve_is_unknown():
    use = use_of(
        raw(
            metrics=(
                Scrape("u", "vllm:num_preemptions_total 1\n", "vllm:num_preemptions_total 1\n"),
            )
        )
    )
    assert (use.preemptions, use.cache_hit_share, use.ttft_mean, use.kv_usage_max) == (
        0,
        None,
        None,
        None,
    )


def test_half_of_a_sum_is_none():
    other = Scrape("u", "a 1\n", "a 2\n")
    assert use_of(raw(metrics=(scrape(80), other))).prompt_tokens is None


def test_an_engine_without_a_prefix_cache_has_no_hits():
    assert use_of(raw(metrics=(scrape(80, queries=1000),))).cache_hit_share == 0.0


def test_no_metrics_no_use():
    assert use_of(raw(metrics=())) is None
    assert use_of(raw(metrics=(Scrape("u", None, None),))) is None


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (metrics_text(9000, count=90), ()),
        (metrics_text(500, count=5), ("http://e/metrics",)),
        (
            metrics_text(9000, count=90).replace("1700000000.0", "1700000500.0"),
            ("http://e/metrics",),
        ),
        (None, ("http://e/metrics",)),
    ],
)
def test_an_engine_that_began_anew_is_noticed(after, expected):
    result = raw(metrics=(replace(scrape(80), after=after),))
    assert restarted(result) == expected
    if expected and after:
        assert use_of(result).prompt_tokens is None


def test_metrics_that_were_never_there_are_no_restart():
    assert restarted(raw(metrics=(Scrape("u", None, None),))) == ()


def test_every_name_is_one_that_the_double_serves_in_those_versions():
    series = yaml.safe_load((ROOT / "tests/lab/vllm_double/behaviour.yml").read_text())["metrics"][
        "series"
    ]
    spans = {item["name"]: (item.get("from"), item.get("to")) for item in series}
    facts = knowledge("bench/metrics.yml")
    for area in ("gauges", "counters", "means"):
        for fact in facts[area].values():
            for item in fact["names"]:
                name = item["name"].removesuffix("_total") if area == "counters" else item["name"]
                assert name in spans
                assert (item.get("from"), item.get("to")) == spans[name]


def test_a_name_ends_before_its_successor_begins():
    for area in ("gauges", "counters"):
        for fact in knowledge("bench/metrics.yml")[area].values():
            firsts = [order(item["from"]) for item in fact["names"] if "from" in item]
            assert firsts == sorted(firsts, reverse=True)


def test_a_gpu_without_figures_is_still_listed():
    use = gpus_of(
        raw(gpus=(GpuSample(0.0, "0000:05:00.0"), GpuSample(1.0, "0000:05:00.0", power_w=500.0)))
    )
    assert [(item.power_w_mean, item.clock_mhz_min) for item in use] == [(500.0, None)]
