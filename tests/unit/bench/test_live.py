# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Experiments on live traffic, by lines of a router's log as HAProxy writes them."""

import json
import random

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.live import (
    compare_sides,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.app.cli import main


def line(side, deployment, session, **more):
    """Return a line with all fields that the router writes."""
    log = knowledge("router.yml")["log"]
    row = {
        "time": 1.5,
        "deployment": deployment,
        **dict.fromkeys((*log["texts"], *log["divided"]), "-"),
        **dict.fromkeys(log["numbers"], 0),
    }
    usual = {"method": "POST", "path": "/v1/chat/completions", "status": 200, "termination": "--"}
    row |= usual | {"side": side, "session": session, "server": f"{deployment}-0", **more}
    assert set(row) <= {"time", "deployment", *log["texts"], *log["divided"], *log["numbers"]}
    return f"Nov 28 15:00:00 router haproxy[1]: {json.dumps(row)}\n"


def traffic(slower=1.0, failing=(0.0, 0.0), sessions=200, servers=2, seed=1):
    """Return shuffled lines: sessions of unlike length, whose requests are alike."""
    draw = random.Random(seed)
    lines = []
    for side, name, factor, share in (
        ("a", "old", 1.0, failing[0]),
        ("b", "new", slower, failing[1]),
    ):
        for number in range(sessions):
            own = draw.lognormvariate(0, 0.4) * factor
            fails = draw.random() < share
            for _turn in range(draw.randrange(1, 12)):
                first = own * draw.uniform(0.95, 1.05) * 400
                lines.append(
                    line(
                        side,
                        name,
                        f"{side}{number:015}",
                        server=f"{name}-{number % servers}",
                        stream="yes",
                        status=500 if fails else 200,
                        ms_first_token=f"{first:.0f}",
                        ms_total=round(first * 10),
                        bytes_out=4000,
                    )
                )
    draw.shuffle(lines)
    return lines


def verdicts(found):
    return {one.what: one.verdict for one in found.verdicts}


FIGURES = ("e2el, s", "ttft", "answer, B/s", "answered")


def test_a_slower_side_is_worse_and_a_faster_one_better():
    for slower, says in ((1.3, "worse"), (1 / 1.3, "better")):
        found = compare_sides(traffic(slower))
        assert (found.a, found.b, found.verdict, found.findings) == ("old", "new", says, ())
        all_of_them = verdicts(found)
        assert all_of_them == dict.fromkeys(FIGURES[:3], says) | {"answered": "no difference found"}
        time = found.verdicts[0]
        assert time.low < slower < time.high
        # 200 sessions of 40 % spread: 2.5 + 0.84 standard errors of 4 %.
        assert 0.1 < time.detectable < 0.2
        assert time.confidence == pytest.approx(0.9875)


def test_equal_sides_are_found_different_no_more_often_than_agreed():
    found = [compare_sides(traffic(sessions=60, seed=seed)).verdict for seed in range(40)]
    assert found.count("no difference found") >= 36


def test_sessions_and_not_requests_are_the_unit():
    """A session of many requests says no more than one of few."""
    lines = traffic(sessions=40)
    once, often = compare_sides(lines), compare_sides([one for one in lines for _ in range(9)])
    for one, other in zip(once.verdicts, often.verdicts, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_more_that_fail_are_worse_and_their_times_do_not_count():
    found = compare_sides(traffic(failing=(0.0, 0.2)))
    assert verdicts(found)["answered"] == found.verdict == "worse"
    assert verdicts(found)["ttft"] == "no difference found"
    ended = [line("b", "new", "x" * 16, termination="SD", ms_total=10**9)] * 500
    assert verdicts(compare_sides(traffic() + ended))["e2el, s"] == "no difference found"


def test_what_the_other_deployment_answered_counts_nowhere_and_is_named():
    lines = traffic()
    more = [line("b", "old", "c" * 16, status=503, ms_total=10**9)] * 70
    found = compare_sides([*more, *lines])
    assert found.verdicts == compare_sides(lines).verdicts
    [doubt] = found.findings
    assert (doubt.code, doubt.subject) == ("BENCH-SIDE", "new")
    assert "old answered 70 requests" in doubt.message


def test_few_sessions_decide_nothing_and_one_replica_is_named():
    found = compare_sides(traffic(2.0, sessions=8, servers=1))
    assert found.verdict == "not decided"
    doubts = [(one.subject, one.message.split(":")[0]) for one in found.findings]
    few, one = "8 sessions, expected 30 or more", "one replica answered"
    assert doubts == [("old", few), ("old", one), ("new", few), ("new", one)]


def test_requests_without_a_session_are_units_and_whole_answers_have_no_first_token():
    pairs = (("a", "old"), ("b", "new"))
    lines = [line(*pair, "-", ms_total=50 + n, bytes_out=9) for pair in pairs for n in range(40)]
    found = compare_sides(lines)
    assert [one.a.n for one in found.verdicts if one.a] == [40, 40, 40]
    assert verdicts(found)["ttft"] == "not decided"


def test_other_lines_are_passed_over():
    lines = traffic()
    hostile = [
        "",
        "{",
        "[" * 100_000,
        "{" * 100_000,
        "haproxy[1]: Proxy old started.",
        line("-", "old", "x"),
        line("c", "old", "x"),
        line("a", "old", "x", method="GET", ms_total=10**9),
        line("a", "old", "x", ms_total=float("nan")),
        line("a", "old", "x", ms_total=None),
        line("a", "old", "x", status="200"),
        line("a", "old", "x", termination=5),
        line("a", "old", "x", **{"ms_first_token": "soon"}),
        line("a", "old", "x", ms_total=10**400),
    ]
    assert compare_sides([*hostile, *lines]) == compare_sides(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line("a", "old", "x")],
        [line("b", "new", "x")],
        [line("a", "old", "x"), line("b", "old", "y")],
        [line("a", "old", "x"), line("b", "new", "y"), line("b", "newer", "z")],
    ],
)
def test_what_is_no_experiment_is_refused(lines):
    with pytest.raises(ApiaryError, match="BENCH-SIDES"):
        compare_sides(lines)


def test_the_command_reads_several_logs(tmp_path, capsys):
    lines = traffic(1.3)
    for number in range(2):
        (tmp_path / f"{number}.log").write_text("".join(lines[number::2]))
    logs = [word for n in range(2) for word in ("--router-log", str(tmp_path / f"{n}.log"))]
    assert main(["compare", *logs]) == 0
    assert capsys.readouterr().out.startswith("new is worse than old, e2el, s:")
    assert main(["compare", *logs, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"]) == ("apiary.comparison/v1", "worse")
    for words in ([*logs, "x.json"], [*logs, "--with", "x.json"], ["x.json"], []):
        assert main(["compare", *words]) == 2
    # What would have no effect on logs is not passed over.
    for words in (["--gpu-hour-price", "2"], ["--regression"]):
        capsys.readouterr()
        assert main(["compare", *logs, *words]) == 2
        assert "for results, not for logs" in capsys.readouterr().err


def test_an_answer_within_a_millisecond_is_one():
    """The log has whole milliseconds; a session of none was left out."""
    lines = [
        line(side, name, f"{side}{number}", ms_total=number % 2, bytes_out=9)
        for side, name in (("a", "old"), ("b", "new"))
        for number in range(60)
    ]
    found = {one.what: one for one in compare_sides(lines).verdicts}
    assert (found["e2el, s"].a.n, found["e2el, s"].b.n) == (60, 60)
    assert found["ttft"].a is None
