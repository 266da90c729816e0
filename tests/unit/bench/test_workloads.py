# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads and SLOs as they are typed."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import (
    concurrency_of,
    names,
    workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit, slo

ENTRIES = knowledge("bench/workloads.yml")["workloads"]


@pytest.mark.parametrize("name", ENTRIES)
def test_every_named_workload_can_be_sent_and_has_a_source(name):
    made = workload(name)
    assert made.name == name
    assert made.input_tokens > made.prefix_tokens
    assert made.output_tokens > 0
    assert ENTRIES[name]["source"]
    assert (made.kind == "images") == bool(made.images and made.image_pixels)
    assert (made.kind in ("prefix", "sessions")) == bool(made.prefixes and made.prefix_tokens)
    for short in ENTRIES[name].get("same_as", ()):
        assert workload(short) == made


def test_the_issue_s_workloads_are_there():
    assert workload("5600/140") == Workload("5600/140", 5600, 140)
    assert concurrency_of("5600/140") == 64
    assert {"500/100", "500/200", "2048/512", "long-context-4k", "long-context-8k"} < set(names())
    assert workload("chat").kind == "sessions"
    assert workload("chat").turns == 4
    assert workload("multi-image").images == 3


def test_a_mixed_workload_has_its_parts_and_their_mean():
    mixed = workload("mixed")
    assert [part.name for part in mixed.parts] == [
        "500/200",
        "2048/512",
        "long-context-4k",
        "long-output",
    ]
    assert mixed.input_tokens == round((500 + 2048 + 4096 + 500) / 4)


def test_two_lengths_are_a_workload_of_any_kind():
    assert workload(" 300/50 ") == Workload("300/50", 300, 50)
    assert workload("random:300/50") == workload("300/50")
    assert workload("prefix:1000/50") == Workload(
        "prefix-1000/50", 1000, 50, "prefix", prefixes=10, prefix_tokens=750
    )
    assert workload("images:100/50").image_pixels == (1024, 768)
    assert workload("sessions:1000/50").turns == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5600",
        "5600/",
        "0/10",
        "10/0",
        "-1/5",
        "5600/140/3",
        "mixed:10/10",
        "nice:10/10",
        "5,6/1",
    ],
)
def test_what_is_no_workload_is_refused_with_the_choice(text):
    with pytest.raises(ApiaryError) as refusal:
        workload(text)
    (finding,) = refusal.value.findings
    assert finding.code == "BENCH-WORKLOAD"
    assert finding.remedy


def test_limits_are_read_with_their_units():
    assert slo("ttft:p90:2s, tpot:p90:50ms,") == (
        Limit("ttft", "p90", 2.0),
        Limit("tpot", "p90", 0.05),
    )
    assert slo("e2el:p99:1.5s") == (Limit("e2el", "p99", 1.5),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttft:p90:2", "has no unit"),
        ("ttft:p90:2m", "has the unit 'm'"),
        ("ttft:p91:2s", "has no p91"),
        ("latency:p90:2s", "has no metric latency"),
        ("ttft=2s", "is not METRIC:PERCENTILE:TIME"),
        ("ttft:p90:-2s", "is not METRIC:PERCENTILE:TIME"),
        ("ttft:p90:0s", "allows no time"),
        ("ttft:p90:1s,ttft:p90:2s", "repeats a limit"),
        (" , ", "has no limit"),
    ],
)
def test_what_is_no_limit_is_refused(text, told):
    with pytest.raises(ApiaryError, match=f"BENCH-SLO.*{told}"):
        slo(text)
