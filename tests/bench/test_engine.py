# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulator keeps to its own model, and to what is known of vLLM's scheduler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.engine_metrics import use_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from hypothesis import given
from hypothesis import strategies as st

from engine_simulator import Client, Engine, Faults, Parameters, names, parameters, simulate
from engine_simulator.replica import Replica
from engine_simulator.traffic import Sent
from support.examples import examples

ENGINE = Engine(
    step=0.01, sequence=1e-3, kv_token=0.0, prefill_token=1e-4, kv_tokens=100_000, network=0.0
)
STILL = Parameters("still", "lab/still", ENGINE, step_cov=0.0, level_cov=0.0, engine_run_cov=0.0)
WORKLOAD = Workload("100/10", 100, 10)


def still(**changes):
    return replace(STILL, engine=replace(ENGINE, **changes))


def shard_of(raw):
    (shard,) = raw.shards
    return shard


def closed(concurrency, requests, workload=WORKLOAD, **more):
    return Load("fixed", workload, requests, concurrency=concurrency, **more)


def test_one_request_takes_its_prefill_and_its_steps():
    shard = shard_of(simulate(still(), closed(1, 1)))
    # 100 prompt tokens x 0.1 ms and a step of one sequence; then nine steps.
    assert shard["ttfts"] == pytest.approx([0.021])
    assert shard["itls"][0] == pytest.approx([0.011] * 9)
    assert shard["latencies"] == pytest.approx([0.021 + 9 * 0.011])


def test_a_decode_step_grows_with_sequences_and_their_context():
    engine = still(kv_token=1e-6, sequence=0.0)
    shard = shard_of(simulate(engine, closed(1, 1)))
    # 101 tokens of context in the first decode step, one more in each after it.
    assert shard["itls"][0] == pytest.approx([0.01 + 1e-6 * (101 + step) for step in range(9)])


def test_experts_cost_by_the_share_that_is_touched():
    one = simulate(still(experts=0.008, expert_share=0.25), closed(1, 1))
    assert shard_of(one)["itls"][0][0] == pytest.approx(0.011 + 0.008 * 0.25)


def test_prompts_share_a_step_up_to_the_token_budget():
    shard = shard_of(simulate(still(max_num_batched_tokens=250), closed(4, 4)))
    # The first begins alone. Beside its next token 249 of 300 prompt tokens fit, then the rest.
    first, second, third = 0.01 + 1e-3 + 0.01, 0.01 + 4e-3 + 0.0249, 0.01 + 4e-3 + 0.0051
    ends = [first, first + second, first + second, first + second + third]
    assert sorted(shard["ttfts"]) == pytest.approx(ends)


def test_a_full_batch_makes_the_others_wait():
    raw = simulate(still(max_num_seqs=1), closed(3, 3))
    alone = 0.021 + 9 * 0.011
    assert shard_of(raw)["latencies"] == pytest.approx([alone, 2 * alone, 3 * alone])
    assert use_of(raw).queue_seconds_mean == pytest.approx(alone)


def test_a_full_kv_cache_preempts_and_nothing_is_lost():
    raw = simulate(still(kv_tokens=430), closed(4, 40))
    shard = shard_of(raw)
    assert use_of(raw).preemptions > 0
    assert shard["completed"] == 40
    assert set(shard["output_lens"]) == {10}
    calm = shard_of(simulate(still(), closed(4, 40)))
    assert shard["duration"] > calm["duration"]


def test_equal_prompts_are_computed_once():
    raw = simulate(still(), closed(1, 20), client=Client(identical=True))
    shard = shard_of(raw)
    # 96 of 100 tokens are whole blocks of 16; the first request finds nothing.
    assert shard["ttfts"][0] == pytest.approx(0.021)
    assert shard["ttfts"][1:] == pytest.approx([0.0114] * 19)
    assert use_of(raw).cache_hit_share == pytest.approx(0.96 * 19 / 20)
    cold = simulate(still(prefix_caching=False), closed(1, 20), client=Client(identical=True))
    assert use_of(cold).cache_hit_share == 0


def test_a_sessions_turn_finds_its_past():
    chat = Workload("chat", 100, 10, kind="sessions", prefixes=1, prefix_tokens=20, turns=3)
    raw = simulate(still(), closed(1, 6, chat))
    shard = shard_of(raw)
    # Each turn has the one before it, its answer and 80 new tokens.
    assert shard["input_lens"] == [100, 190, 280] * 2
    assert shard["asked_input_lens"] == shard["input_lens"]
    # 110 of 190 are in the cache, 96 of them whole blocks; the second session finds the prefix.
    prefills = [round((seconds - 0.011) / 1e-4) for seconds in shard["ttfts"]]
    assert prefills == [100, 190 - 96, 280 - 192, 100 - 16, 190 - 96, 280 - 192]


# Chats of four turns: 100 tokens at first, 90 more in each turn.
CHATS = Workload("chats", 100, 10, kind="sessions", prefixes=1, prefix_tokens=20, turns=4)


def hits(concurrency, **engine):
    """The share of prompt tokens that chats beside one another find in the cache."""
    raw = simulate(still(**engine), closed(concurrency, 4 * concurrency, CHATS))
    return use_of(raw).cache_hit_share


def test_what_the_cache_has_no_room_for_is_computed_anew():
    # Eight chats end with 380 tokens each.
    enough = hits(8)
    assert hits(8, kv_tokens=8 * 380) == pytest.approx(enough)
    few, fewer = hits(8, kv_tokens=4 * 380), hits(8, kv_tokens=2 * 380)
    assert enough > few > fewer


def test_what_is_evicted_comes_back_from_the_hosts_memory_at_its_cost():
    full = closed(8, 32, CHATS)
    scarce = {"kv_tokens": 3 * 380}
    free = {**scarce, "offload_tokens": 8 * 380}
    assert hits(8, **scarce) < hits(8, **free) == pytest.approx(hits(8))
    times = [
        shard_of(simulate(still(**engine), full))["duration"]
        for engine in (scarce, {**free, "offload_token": 5e-5}, free)
    ]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3
    # Some of what is evicted fits there.
    assert hits(8, **scarce) < hits(8, **scarce, offload_tokens=380) < hits(8)


def test_a_chat_whose_shared_prefix_is_gone_finds_nothing():
    replica = Replica(replace(ENGINE, kv_tokens=1000), 1.0, 0.0, np.random.default_rng(0))
    replica.keep("card", 512, 512)
    replica.keep("chat", 800, 288)
    turn = Sent(0, 900, 10, "card", 512, session="chat", past=800)
    assert replica._hit(turn) == (800, 0)
    replica.forget("card")
    assert replica._hit(turn) == (0, 0)


@pytest.mark.parametrize("repeat", [0, 1, 2])
@pytest.mark.parametrize(("card", "share"), [(5200, 0.95), (1500, 0.9)])
def test_chats_of_the_case_study_find_95_percent_where_their_sessions_stay(card, share, repeat):
    """A character card, talk up to 5,600 tokens, answers of 140; twenty turns, 64 at once."""
    chats = Workload("case", 5600, 140, kind="sessions", prefixes=40, prefix_tokens=card, turns=20)
    deployment = replace(parameters("qwen3-235b-tp4x2"), routing="shard")
    raw = simulate(deployment, closed(64, 20 * 128, chats, repeat=repeat))
    assert share - 0.001 <= use_of(raw).cache_hit_share < share + 0.02


@pytest.mark.parametrize("routing", ["shard", "least"])
def test_two_replicas_serve_twice_as_much(routing):
    one = shard_of(simulate(still(), closed(8, 80)))
    two = replace(still(), replicas=2, routing=routing)
    assert shard_of(simulate(two, closed(16, 160)))["duration"] == pytest.approx(
        one["duration"], rel=0.02
    )


def test_the_first_step_of_a_shape_is_dear_unless_it_was_warmed():
    cold, warm = (
        shard_of(simulate(still(jit=1.0), closed(4, 40, warmups=warmups))) for warmups in (0, 4)
    )
    assert max(cold["ttfts"]) > 1.0
    assert max(warm["ttfts"]) < 0.2


def test_engine_runs_differ_more_than_repeats():
    noisy = replace(STILL, engine_run_cov=0.05)
    engine_runs = [
        shard_of(simulate(noisy, closed(1, 20, engine_run=engine_run)))["duration"]
        for engine_run in range(8)
    ]
    repeats = [shard_of(simulate(noisy, closed(1, 20, repeat=at)))["duration"] for at in range(8)]
    assert np.std(engine_runs) / np.mean(engine_runs) == pytest.approx(0.05, rel=0.6)
    assert np.std(repeats) == pytest.approx(0.0, abs=1e-9)


def test_arrivals_are_poisson_at_the_requested_rate():
    load = Load("open", WORKLOAD, 2000, request_rate=10.0)
    starts = np.sort(shard_of(simulate(still(), load))["start_times"])
    gaps = np.diff(starts)
    assert np.ptp(starts) == pytest.approx(200.0, rel=0.01)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1.0, rel=0.1)


def test_a_dead_engine_answers_nothing_more():
    raw = simulate(still(), closed(4, 80), faults=Faults(crash_after=0.5))
    shard = shard_of(raw)
    assert 0 < shard["completed"] < 80
    assert shard["completed"] + shard["failed"] == 80
    assert {error for error in shard["errors"] if error} == {
        "Server disconnected",
        "Cannot connect to host: Connection refused",
    }
    assert [scrape.after for scrape in raw.metrics] == [None]


loads = st.builds(
    Load,
    phase=st.just("fixed"),
    workload=st.builds(
        Workload,
        name=st.just("w"),
        input_tokens=st.integers(1, 600),
        output_tokens=st.integers(1, 30),
    ),
    requests=st.integers(1, 60),
    concurrency=st.integers(1, 40),
    seed=st.integers(0, 9),
)
engines = st.builds(
    replace,
    st.just(ENGINE),
    max_num_seqs=st.integers(1, 50),
    max_num_batched_tokens=st.integers(64, 4000),
    kv_tokens=st.integers(700, 5000),
    kv_token=st.floats(0, 1e-6),
)


@examples(0.4)
@given(load=loads, engine=engines, processes=st.integers(1, 3), replicas=st.integers(1, 3))
def test_whatever_is_requested_adds_up(load, engine, processes, replicas):
    """Every request ends once, in time, with its tokens; Little's law holds; it is repeatable."""
    of = Parameters("any", "lab/any", engine, replicas=replicas, routing="least")
    client = Client(processes=processes, chunk=1e-5)
    raw = simulate(of, load, client=client)
    assert sum(shard["completed"] for shard in raw.shards) == load.requests
    in_flight = 0.0
    for shard in raw.shards:
        for ttft, gaps, latency, output in zip(
            shard["ttfts"], shard["itls"], shard["latencies"], shard["output_lens"], strict=True
        ):
            assert output == load.workload.output_tokens == len(gaps) + 1
            assert ttft > 0
            assert min(gaps, default=1.0) > 0
            assert ttft + sum(gaps) == pytest.approx(latency)
            in_flight += latency
    assert in_flight <= min(load.concurrency, load.requests) * raw.seconds * (1 + 1e-9)
    generated = load.requests * load.workload.output_tokens
    texts = [scrape.after or "" for scrape in raw.metrics]
    counted = sum(
        float(line.split()[-1])
        for text in texts
        for line in text.splitlines()
        if line.startswith("vllm:generation_tokens_total")
    )
    assert counted == generated
    assert dumps(simulate(of, load, client=client)) == dumps(raw)


def test_every_parameter_set_can_be_read():
    assert {"small", "llama-3.1-405b-tp8", "qwen3-235b-tp8x1", "qwen3-235b-tp4x2"} <= set(names())
    for name in names():
        of = parameters(name)
        assert of.sources
        assert shard_of(simulate(of, closed(2, 4)))["completed"] == 4


def test_a_trace_is_replayed_with_its_gaps_and_finds_what_its_session_left():
    """Ten sessions of three turns, 20 s apart, each beginning with all of the one before."""
    turns = [(s, 2.0 * s + 20 * t, 1000 + 500 * t, 10) for t in range(3) for s in range(10)]
    work = Workload("trace-x", 1500, 10, kind="trace", turns=2, trace=tuple(turns))
    # The trace's own rate: thirty requests, two seconds apart.
    shard = shard_of(simulate(still(), Load("fixed", work, 30, request_rate=0.5)))
    assert sorted(shard["input_lens"]) == [1000] * 10 + [1500] * 10 + [2000] * 10
    told = sorted(zip(shard["start_times"], shard["ttfts"], strict=True))
    assert [start - told[0][0] for start, _ttft in told] == pytest.approx(range(0, 60, 2))
    # Of a later turn 490 tokens are new, and what its last block lacks.
    assert told[-1][1] < 0.75 * told[0][1]
