# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The load generator's JSON to requests: every version's keys, and what no clock gives."""

import math
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.parse import (
    behaves,
    requested_lengths,
    requests_of,
    shard_requests,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.bench.raw import LOAD, OPEN, changed, failing, raw, shard

FIELDS = knowledge("bench/fields.yml")["fields"]
NEWER = {name: fact["from"] for name, fact in FIELDS.items() if "from" in fact}


def of_version(version):
    """A shard with the keys that a version writes."""
    return {
        key: value
        for key, value in shard(8, 4).items()
        if key not in NEWER or order(NEWER[key]) <= order(version)
    }


@pytest.mark.parametrize("version", ["0.9.2", "0.11.0", "0.14.1", "0.15.1", "0.28.0", "0.32.0"])
def test_every_version_s_requests_are_the_same(version):
    made = shard_requests(of_version(version), "level")
    assert len(made) == 8
    assert {request.ttft for request in made} == {0.1}
    assert made[0].latency == pytest.approx(0.48)
    assert (made[0].input_tokens, made[0].output_tokens, len(made[0].gaps)) == (100, 20, 19)
    assert (made[0].start is None) == (version in ("0.9.2", "0.11.0", "0.14.1"))


def test_shards_are_put_together_by_when_requests_began():
    early, late = shard(4, 1, begin=1000.0), shard(4, 1, begin=1000.1)
    for shards in ((early, late), (late, early)):
        starts = [request.start for request in requests_of(raw(shards=shards), "level")]
        assert starts == sorted(starts)
        assert len(starts) == 8


def test_an_open_loop_s_waiting_in_the_client_is_part_of_its_latency():
    result = changed(raw(OPEN), queue_times=[0.25] * 120)
    request = requests_of(result, "level")[0]
    assert (request.latency, request.ttft) == (pytest.approx(0.73), pytest.approx(0.35))
    assert request.start == 1000.0 - 0.25


def test_a_closed_loop_s_waiting_for_a_place_is_not():
    request = requests_of(changed(raw(LOAD), queue_times=[0.25] * 80), "level")[0]
    assert (request.latency, request.start) == (pytest.approx(0.48), 1000.0)


def test_our_own_client_s_times_have_the_waiting_in_them():
    result = changed(replace(raw(OPEN), backend="builtin"), queue_times=[0.25] * 120)
    assert requests_of(result, "level")[0].latency == pytest.approx(0.48)


def test_a_failed_request_has_its_error_and_no_times():
    requests = requests_of(failing(2), "level")
    failed = [request for request in requests if request.error]
    assert len(failed) == 2
    assert {(request.latency, request.ttft, request.output_tokens) for request in failed} == {
        (None, None, 0)
    }


def test_a_request_without_any_token_failed_though_no_error_says_so():
    result = shard(8, 4)
    result["ttfts"][3], result["output_lens"][3], result["itls"][3] = 0.0, 0, []
    result["completed"] = 7
    assert shard_requests(result, "level")[3].error == "no answer, and no reason given"


def test_an_answer_that_was_not_streamed_has_a_latency_only():
    result = shard(8, 4) | {"ttfts": [None] * 8, "itls": [[]] * 8}
    request = shard_requests(result, "level")[0]
    assert (request.ttft, request.latency, request.gaps) == (None, pytest.approx(0.48), ())
    del result["latencies"]
    with pytest.raises(ApiaryError, match="neither a ttft nor a latency"):
        shard_requests(result, "level")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"ttfts": [0.1] * 79}, "differ in length: .*ttfts 79"),
        ({"asked_output_lens": [20] * 79}, "differ in length"),
        ({"itls": 3}, "differ in length: .*itls -1"),
        ({"ttfts": [math.nan] * 80}, "request 0: ttfts has nan"),
        ({"ttfts": [True] * 80}, "request 0: ttfts has True"),
        ({"start_times": [math.inf] * 80}, "start_times has inf"),
        ({"itls": [[0.02, -0.1]] * 80}, "itls has -0.1, which is before it began"),
        ({"itls": [[0.02, "x"]] * 80}, "itls has 'x'"),
        ({"itls": [0.02] * 80}, "its itls are no list"),
        ({"output_lens": [2.5] * 80}, "output_lens has 2.5"),
        ({"input_lens": [-1] * 80}, "input_lens has -1"),
        ({"completed": 79}, "counts 79 completed requests and shows 80"),
        ({"duration": math.nan}, "shard 0: duration has nan"),
    ],
)
def test_what_no_measurement_gives_is_one_finding(columns, told):
    with pytest.raises(ApiaryError, match=told) as refusal:
        requests_of(changed(raw(), **columns), "level")
    assert [finding.code for finding in refusal.value.findings] == ["BENCH-RESULT"]


def test_missing_keys_are_named():
    result = shard()
    del result["itls"], result["errors"]
    with pytest.raises(ApiaryError, match="no itls, errors: was it saved with --save-detailed"):
        requests_of(raw(shards=(result,)), "level")


def test_no_result_and_no_request_are_told():
    with pytest.raises(ApiaryError, match="left no result; its log ends: boom"):
        requests_of(raw(shards=(), log="boom\n"), "level")
    with pytest.raises(ApiaryError, match="no request at all"):
        requests_of(raw(shards=(shard(0),)), "level")


def test_what_was_requested_is_known_of_our_own_client_only():
    requested = {"asked_input_lens": [100] * 80, "asked_output_lens": [20] * 79 + [30]}
    assert requested_lengths(raw()) is None
    assert requested_lengths(changed(raw(), **requested))[-2:] == (
        ((100, 100), (20, 20)),
        ((100, 100), (30, 20)),
    )


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9.2", (False, False, True)),
        ("0.10.2", (False, True, True)),
        ("0.11.0", (False, True, False)),
        ("0.20.2", (True, True, False)),
        ("0.34.0", (True, True, False)),
        ("nightly", (False, False, False)),
    ],
)
def test_a_client_behaves_by_its_version(version, expected):
    names = ("usage_input_lens", "scaled_arrivals", "first_prompt_probe")
    assert tuple(behaves(raw(version=version), name) for name in names) == expected
