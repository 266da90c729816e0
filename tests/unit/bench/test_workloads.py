# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads and SLOs as they are typed."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.command import builtin_argv
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import (
    concurrency_of,
    names,
    trace,
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


def line(**changes):
    told = {
        "time": 1764331200.5,
        "deployment": "demo",
        "path": "/v1/chat/completions",
        "status": 200,
    }
    told |= {"session": "a" * 16, "stream": "yes", "bytes_in": 4600, "bytes_out": 2700, **changes}
    return "<134>Nov 28 12:00:00 haproxy[1]: " + json.dumps(told)


def test_a_routers_log_is_a_workload(tmp_path):
    file = tmp_path / "router.log"
    lines = [
        line(time=1764331203, bytes_in=8600),
        line(),
        line(time=1764331201, session="-", stream="-", bytes_out=1100),
        line(time=1764331202, session="-"),
        # What was not answered, is no prompt, or no log line at all.
        *(line(status=429), line(path="/v1/models"), "haproxy: started", '{"time":', "{}"),
        *(line(time="x"), line(time=float("nan")), line(bytes_in=None), line(bytes_out=1e999)),
    ]
    file.write_text("\n".join(lines))
    found = workload(f"trace:{file}")
    assert found.trace == (
        (0, 0.0, 1000, 10),
        (1, 0.5, 1000, 100),
        (2, 1.5, 1000, 10),
        (0, 2.5, 2000, 10),
    )
    assert (found.name, found.kind, found.turns) == ("trace-demo", "trace", 2)
    assert (found.input_tokens, found.output_tokens) == (1250, 32)


@pytest.mark.parametrize("lines", [[], [line()], [line(), line(deployment="other")]])
def test_a_log_without_a_workload_is_refused(tmp_path, lines):
    file = tmp_path / "router.log"
    file.write_text("\n".join(lines))
    with pytest.raises(ApiaryError, match="BENCH-WORKLOAD"):
        workload(f"trace:{file}")
    with pytest.raises(ApiaryError, match="FILE-UNREADABLE"):
        workload(f"trace:{tmp_path}/absent")


def test_the_longest_log_is_a_command():
    lines = [line(time=1764331200 + 100 * n, bytes_in=10**9, session=str(n)) for n in range(5000)]
    work = trace("trace:x", lines)
    load = Load("fixed", work, 4000, request_rate=5.0)
    words = builtin_argv(load, Target(("http://a",), "m"), 0, 1, "there", "x.json")
    assert len(work.trace) == 4000
    assert max(map(len, words)) < 131072
