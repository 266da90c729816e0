# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of vLLM's client by version, as its own parser takes it."""

import json
from dataclasses import replace
from itertools import product

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.command import (
    argv,
    seed_of,
    share,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Target
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import names, workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

ONE = Target(("http://127.0.0.1:8000",), "m", tokenizer="/models/m")
TWO = replace(ONE, urls=("http://a:8000/", "http://b:8000"))
LOAD = Load("scaling", workload("5600/140"), 640, 64, warmups=64, seed=1)

MIXED = replace(LOAD, workload=workload("mixed"))


def command(load=LOAD, target=ONE, shard=0, shards=1, version="0.32.0"):
    return argv(load, target, shard, shards, version, "/tmp/r", f"shard-{shard}.json")


def options(words):
    """Flags with their values; a switch has None."""
    flags = words[words.index("serve") + 1 :]
    return {
        flag: (None if following.startswith("--") else following)
        for flag, following in zip(flags, (*flags[1:], "--"), strict=True)
        if flag.startswith("--")
    }


def sent(name):
    """The load of a workload, or none if vLLM's client can't send it."""
    made = workload(name)
    return None if made.kind == "sessions" else replace(LOAD, workload=made)


@pytest.mark.parametrize("version", ["0.9.2", "0.11.0", "0.14.1", "0.32.0"])
def test_command_lines(version, golden):
    lines = []
    for name, closed in product(names(), (True, False)):
        load = sent(name)
        if load is None:
            continue
        if not closed:
            load = replace(load, concurrency=None, request_rate=6.4)
        shards = len(load.workload.parts) or 1
        for shard in range(shards):
            try:
                words = command(load, shard=shard, shards=shards, version=version)
            except ApiaryError as refusal:
                words = (str(refusal.findings[0].code), refusal.findings[0].message)
            lines.append(f"{name} {'closed' if closed else 'open'} {shard}: {' '.join(words)}\n")
    golden(f"bench/command/{version}.txt", "".join(lines))


def test_a_closed_loop_has_slots_and_an_open_one_a_rate():
    closed = options(command())
    assert (closed["--max-concurrency"], "--request-rate" in closed) == ("64", False)
    opened = options(command(replace(LOAD, concurrency=None, request_rate=6.4)))
    assert (opened["--request-rate"], opened["--burstiness"]) == ("6.4", "1.0")
    assert "--max-concurrency" not in opened


def test_the_prompt_has_as_many_tokens_as_requested_for():
    flags = options(command())
    assert int(flags["--random-input-len"]) + int(flags["--random-prefix-len"]) == 5600
    assert flags["--random-output-len"] == "140"
    prefix = options(command(replace(LOAD, workload=workload("prefix"))))
    lengths = [prefix[f"--prefix-repetition-{part}-len"] for part in ("prefix", "suffix")]
    assert sum(map(int, lengths)) == 2048


def test_pictures_go_as_chat_and_are_many_of_one_size():
    flags = options(command(replace(LOAD, workload=workload("vision-3"))))
    assert (flags["--backend"], flags["--endpoint"]) == ("openai-chat", "/v1/chat/completions")
    assert flags["--random-mm-base-items-per-request"] == "3"
    assert json.loads(flags["--random-mm-limit-mm-per-prompt"]) == {"image": 3, "video": 0}
    assert flags["--random-mm-bucket-config"] == "{(768, 1024, 1): 1.0}"


def test_shards_share_everything_evenly_and_take_addresses_in_turn():
    load = replace(LOAD, requests=641, concurrency=63, warmups=6)
    shards = [options(command(load, TWO, shard, 4)) for shard in range(4)]
    assert sum(int(flags["--num-prompts"]) for flags in shards) == 641
    assert [int(flags["--max-concurrency"]) for flags in shards] == [16, 16, 16, 15]
    assert [int(flags["--num-warmups"]) for flags in shards] == [2, 2, 1, 1]
    assert [flags["--base-url"] for flags in shards] == ["http://a:8000", "http://b:8000"] * 2
    assert len({flags["--seed"] for flags in shards}) == 4
    assert [flags["--result-filename"] for flags in shards] == [f"shard-{n}.json" for n in range(4)]


def test_rates_are_shared():
    load = replace(LOAD, concurrency=None, request_rate=10.0)
    assert [options(command(load, ONE, shard, 3))["--request-rate"] for shard in range(3)] == [
        "3.333333333"
    ] * 3


def test_parts_of_a_mixed_load_go_to_every_address_alike():
    load = replace(MIXED, concurrency=None, request_rate=8.0)
    seen = [
        (flags["--base-url"], flags["--random-input-len"], flags["--random-output-len"])
        for flags in (options(command(load, TWO, shard, 8)) for shard in range(8))
    ]
    assert len(set(seen)) == 8


def test_no_two_loads_share_a_seed_and_one_has_its_own_again():
    loads = [
        LOAD,
        replace(LOAD, seed=2),
        replace(LOAD, repeat=1),
        replace(LOAD, engine_run=1),
        replace(LOAD, concurrency=32),
        replace(LOAD, phase="slo"),
        replace(LOAD, workload=workload("500/100")),
    ]
    seeds = {seed_of(load, shard) for load in loads for shard in range(4)}
    assert len(seeds) == 4 * len(loads)
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert seed_of(LOAD, 0) == seed_of(replace(LOAD), 0)


def test_shares_add_up():
    assert [share(10, shard, 4) for shard in range(4)] == [3, 3, 2, 2]


def test_prompts_with_prefixes_are_made_in_whole_rounds():
    # The client makes requests // prefixes prompts of each prefix: 33 would become 30.
    load = replace(LOAD, workload=workload("prefix"), requests=33, concurrency=3)
    assert options(command(load))["--num-prompts"] == "40"
    few = options(command(replace(load, requests=4)))
    assert (few["--num-prompts"], few["--prefix-repetition-num-prefixes"]) == ("4", "4")


@pytest.mark.parametrize("version", versions())
def test_every_known_version_has_a_command_and_the_same_meaning(version):
    flags = options(command(version=version))
    assert flags["--num-prompts"] == "640"
    assert flags.get("--backend", flags.get("--endpoint-type")) == "openai"
    assert {"--ignore-eos", "--save-detailed", "--save-result", "--disable-tqdm"} <= set(flags)
    assert flags["--temperature"] == "0"


def test_a_short_prompt_has_no_room_for_a_mark():
    made = replace(LOAD, workload=workload("2/10"))
    flags = options(command(made))
    assert (flags["--random-input-len"], flags["--random-prefix-len"]) == ("2", "0")


def test_what_stands_before_and_the_tokenizer_are_the_caller_s():
    words = argv(
        LOAD, replace(ONE, tokenizer=None), 0, 1, "0.32.0", "@DIR@", "f", ("podman", "run", "i")
    )
    assert words[:5] == ("podman", "run", "i", "bench", "serve")
    assert "--tokenizer" not in words
    assert options(words)["--result-dir"] == "@DIR@"


@pytest.mark.parametrize("version", ["0.9.1", "0.8.5", "latest", ""])
def test_a_version_without_this_client_is_refused(version):
    with pytest.raises(ApiaryError, match="BENCH-VERSION"):
        command(version=version)


@pytest.mark.parametrize(
    ("load", "target", "shards", "code"),
    [
        (LOAD, TWO, 3, "BENCH-SHARDS"),
        (LOAD, ONE, 65, "BENCH-SHARDS"),
        (LOAD, replace(ONE, urls=()), 1, "BENCH-SHARDS"),
        (LOAD, ONE, 0, "BENCH-SHARDS"),
        (replace(MIXED, concurrency=None, request_rate=8.0), TWO, 4, "BENCH-SHARDS"),
        (MIXED, ONE, 4, "BENCH-WORKLOAD"),
        (replace(LOAD, workload=workload("sessions")), ONE, 1, "BENCH-WORKLOAD"),
    ],
)
def test_a_load_that_cannot_be_sent_so_is_refused(load, target, shards, code):
    with pytest.raises(ApiaryError, match=code):
        command(load, target, shards=shards)


def test_a_kind_that_the_version_has_no_data_for_is_refused():
    with pytest.raises(ApiaryError, match=r"has a data set for the kind images from 0\.10\.2 on"):
        command(replace(LOAD, workload=workload("vision")), version="0.9.2")
