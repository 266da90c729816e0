# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures and verdicts are read out of what the programs print, and judged by AMD's bounds."""

from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance import measured
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.measured import (
    parse_rccl,
    parse_rvs,
    parse_transferbench,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import (
    HasRead,
    Health,
    Measured,
    Ran,
    Settings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from hypothesis import given
from hypothesis import strategies as st

OUTPUTS = Path(__file__).parent / "outputs"


def printed(name):
    return (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")


def ran(test, name, output, code=0, **more):
    return Ran(test, name, (test, name), code, output, 1.0, **more)


def judged(*runs, model="MI325X", settings=Settings()):  # noqa: B008 - is frozen
    return list(measured.checks("gpu-001", model, Measured(runs=runs), settings))


def states(checks):
    return [(one.subject.removeprefix("gpu-001: "), one.state) for one in checks]


def test_rccl_is_read():
    told = parse_rccl(printed("rccl"))
    assert [row.bytes for row in told.rows] == [8, 2**20, 2**32, 2**33]
    assert told.rows[-1].in_place == 311.28
    assert told.rows[-1].out_of_place == 311.24
    assert told.wrong == 0


def test_transferbench_is_read():
    assert parse_transferbench(printed("transferbench-a2a")).average == 46.552
    told = parse_transferbench(printed("transferbench-p2p"))
    assert (told.one_way, told.both_ways) == (48.44, 46.17)


def test_a_guest_without_pairs_of_gpus_has_no_figure():
    text = "Averages (During UniDir):       N/A      5.48      7.17       N/A\n"
    assert parse_transferbench(text).one_way is None


def test_rvs_is_read():
    assert [one.good for one in parse_rvs(printed("rvs-gst")).verdicts] == [True, False]
    assert [one.gpu for one in parse_rvs(printed("rvs-iet")).verdicts] == ["29122", "23018"]
    assert [one.good for one in parse_rvs(printed("rvs-peqt")).verdicts] == [True, False]
    rates = parse_rvs(printed("rvs-pebb")).rates
    assert rates == (("0000:05:00.0", 55.664), ("0000:e5:00.0", 56.334))


@given(st.text(max_size=400))
def test_no_output_breaks_a_parser(text):
    parse_rccl(text)
    parse_transferbench(text)
    parse_rvs(text)


def test_what_reaches_its_bound_passes_and_says_by_whom():
    checks = judged(
        ran("rccl", "all_reduce", printed("rccl")),
        ran("transferbench", "a2a", printed("transferbench-a2a")),
        ran("transferbench", "p2p", printed("transferbench-p2p")),
    )
    assert {one.state for one in checks} == {"pass"}
    assert any("at least 304 GB/s" in one.expected for one in checks)
    assert all("instinct.docs.amd.com" in one.source for one in checks)


def test_a_slow_one_fails():
    slow = printed("rccl").replace("311.28", "303.99")
    bad = [one for one in judged(ran("rccl", "all_reduce", slow)) if one.state == "fail"]
    assert [(one.code, one.severity, one.found) for one in bad] == [
        ("ACCEPT-RCCL", "error", "303.99 GB/s")
    ]


def test_what_is_allowed_and_not_usual_is_a_warning():
    checks = judged(ran("rccl", "all_reduce", printed("rccl")), model="MI355X")
    assert [one.severity for one in checks if one.state == "fail"] == ["warning"]


def test_without_a_published_bound_it_is_measured_only():
    checks = judged(ran("transferbench", "a2a", printed("transferbench-a2a")), model="MI355X")
    assert [(one.state, one.found) for one in checks] == [("pass", "46.552 GB/s")]
    assert "nobody published a bound" in checks[0].expected


def test_wrong_values_fail():
    wrong = printed("rccl").replace("values : 0 OK", "values : 3 FAILED")
    assert ("rccl all_reduce, values", "fail") in states(
        judged(ran("rccl", "all_reduce", wrong, code=1))
    ) or judged(ran("rccl", "all_reduce", wrong, code=1))[0].state == "fail"


def test_rvs_names_the_gpu_that_missed_its_target():
    bad = [one for one in judged(ran("rvs", "gst", printed("rvs-gst"))) if one.state == "fail"]
    assert [one.found for one in bad] == ["1391002 of 1438000 GFLOPS"]
    assert "GPU 23018" in bad[0].subject


def test_an_error_in_the_log_of_rvs_fails():
    text = printed("rvs-iet") + "[ERROR ] [1.2] [iet] cannot open device\n"
    assert "fail" in {one.state for one in judged(ran("rvs", "iet", text))}


@pytest.mark.parametrize("test", ["rccl", "transferbench", "rvs"])
def test_one_that_is_not_installed_is_skipped_with_the_reason(test):
    name = knowledge("acceptance/tests.yml")[test]["runs"][0]["name"]
    told = Ran(test, name, installed=False, error="not installed: x not found")
    assert [(one.state, one.found) for one in judged(told)] == [
        ("skip", "not installed: x not found")
    ]


def test_one_that_could_not_run_beside_others_fails():
    told = Ran("rvs", "gst", error="not run: process 7 holds 180 GiB of VRAM")
    assert [one.state for one in judged(told)] == ["fail"]


def test_one_that_broke_off_fails_with_its_last_line():
    broken = ran("rccl", "all_reduce", "x\nHIP error: out of memory\n", code=2)
    assert judged(broken)[0].found == "ended with 2: HIP error: out of memory"


def test_output_that_nobody_knows_is_unknown():
    for test, name in (("rccl", "all_reduce"), ("transferbench", "a2a"), ("rvs", "gst")):
        assert {one.state for one in judged(ran(test, name, "hello\n"))} == {"unknown"}


def test_health_of_replicas():
    given = Measured(health=(Health("a", 200), Health("b", 503), Health("c", error="no answer: x")))
    checks = list(measured.checks("h", None, given, Settings()))
    assert [(one.state, one.found) for one in checks] == [
        ("pass", "HTTP 200"),
        ("fail", "HTTP 503"),
        ("fail", "no answer: x"),
    ]


@pytest.mark.parametrize(
    ("read", "minimum", "state"),
    [
        (HasRead(8 * 10**9, 2.0, 4), None, "pass"),
        (HasRead(8 * 10**9, 2.0, 4), 5000, "fail"),
        (HasRead(10**9, 2.0, 4), None, "fail"),
        (HasRead(0, 0.0, 0, error="no file"), None, "unknown"),
        (None, None, "skip"),
    ],
)
def test_reading_is_judged(read, minimum, state):
    settings = Settings(nfs_throughput=True, nfs_minimum=minimum)
    checks = list(measured.checks("h", None, Measured(read=read), settings))
    assert [(one.code, one.state) for one in checks] == [("ACCEPT-NFS-THROUGHPUT", state)]
