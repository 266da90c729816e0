# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary report`, `compare` and `capacity` from the command line."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Interval,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Budget,
    Outcome,
    Question,
)

from apiary.app.cli import main
from apiary.app.schemas import schema
from support.bench.documents import BLOG, DP2, SLO, TP8, Curve, bench
from support.engines import deployment
from support.topology.topologies import mi325x

STEPS = (1, 8, 64, 128)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Results of two layouts, and of one that got slower, in the working directory."""
    monkeypatch.chdir(tmp_path)
    made = {
        "dp2.json": bench("DP2/TP4/EP4", DP2, steps=STEPS),
        "tp8.json": bench("DP1/TP8/EP8", TP8, steps=STEPS, broken=(128,)),
        "slower.json": bench("DP2/TP4/EP4", Curve(0.0150), steps=STEPS),
        "llama.json": bench("TP8", model="Llama-3.1-405B-Instruct", steps=STEPS, engine_runs=1),
        "empty.json": replace(bench("DP2/TP4/EP4", steps=(1,)), levels=(), searches=()),
    }
    for name, document in made.items():
        Path(name).write_text(dumps(document))
    return tmp_path


def findings(capsys):
    return [one["code"] for one in json.loads(capsys.readouterr().err)["findings"]]


def test_the_builder_s_results_are_documents():
    jsonschema.validate(to_document(bench()), schema("bench"))


def test_report_for_a_terminal(files, capsys, golden):
    assert main(["report", "dp2.json", "tp8.json"]) == 0
    golden("report/terminal.txt", capsys.readouterr().out)


def test_report_as_json_and_page(files, capsys):
    assert main(["report", "dp2.json", "tp8.json", "--out", "made/r.html", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "apiary.report/v1"
    assert document["headline"]["verdict"] == "better"
    assert Path("made/r.html").read_text().startswith("<!DOCTYPE html>")


def tuned(made):
    """The state of a tuning between two layouts, and the file of each of its trials."""
    question = Question(
        deployment(ep=True, max_model_len=32768),
        BLOG,
        SLO,
        layouts=tuple(made),
        knobs={},
        budget=Budget(engine_runs=2, confirm_engine_runs=0),
        hosts=("gpu-001",),
    )
    state = steps.begin(question, architecture_of(question.deployment, "tuned"), mi325x())
    number = 0
    while state.choice is None:
        for trial in steps.assign(state, ["gpu-001"]):
            layout = state.candidate(trial.candidate).layout
            curve = made[layout]
            number += 1
            path = f"trial-{number}.json"
            Path(path).write_text(
                dumps(bench(layout, curve, steps=(1, 8), engine_runs=1, seed=number))
            )
            score = Interval(1, 12.8 if curve is DP2 else 8.3)
            done = Outcome("measured", score, score.mean * 1.02, path=path, seconds=60)
            state = steps.record(state, trial, done)
    return state


def test_a_tuning_s_choice_is_the_headline_and_its_longest_trials_are_drawn(files, capsys):
    state = tuned({"DP2/TP4/EP4": DP2, "DP1/TP8/EP8": TP8})
    Path("state.json").write_text(dumps(state))
    assert main(["report", "state.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["headline"]["verdict"] == state.choice.verdict
    shown = {one["name"]: len(one["benches"]) for one in document["configurations"]}
    assert shown == {one.label: 2 for one in state.candidates}
    said = [line.strip() for line in summary(state)]
    assert [document["headline"]["text"], *document["headline"]["reasons"]] == [
        f"{said[0]}.",
        *said[1:],
    ]


def test_a_tuning_by_replaced_rules_says_that_it_is_not_to_be_published(files, capsys):
    state = tuned({"DP2/TP4/EP4": DP2, "DP1/TP8/EP8": TP8})
    for path in Path().glob("trial-*.json"):
        document = json.loads(path.read_text())
        document["environment"]["rules"] = {"requests_least": 20}
        path.write_text(json.dumps(document))
    Path("state.json").write_text(dumps(state))
    assert main(["report", "state.json", "--json"]) == 0
    told = capsys.readouterr()
    assert "Not to be published" in json.loads(told.out)["headline"]["text"]
    assert "BENCH-UNPROVEN" in told.err


def test_a_tuning_that_goes_on_is_said_to_be_unfinished(files, capsys):
    state = tuned({"DP2/TP4/EP4": DP2, "DP1/TP8/EP8": TP8})
    Path("state.json").write_text(dumps(replace(state, choice=None, rounds=state.rounds[:1])))
    assert main(["report", "state.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["headline"]["verdict"] == "unfinished"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("empty.json", "REPORT-EMPTY"),
        ("missing.json", "FILE-UNREADABLE"),
        ("broken.json", "FILE-SYNTAX"),
        ("other.json", "DOC-SCHEMA"),
        ("untried.json", "REPORT-EMPTY"),
        ("field.json", "DOC-UNKNOWN"),
    ],
)
def test_what_is_no_result_is_one_finding(files, capsys, name, code):
    Path("broken.json").write_text('{"schema": ')
    Path("other.json").write_text('{"schema": "apiary.plan/v1"}')
    state = tuned({"DP2/TP4/EP4": DP2, "DP1/TP8/EP8": TP8})
    Path("untried.json").write_text(dumps(replace(state, trials=(), choice=None)))
    Path("field.json").write_text('{"schema": "apiary.bench/v2", "x": 1}')
    assert main(["report", name, "--out", "r.html", "--json"]) == 1
    assert findings(capsys) == [code]
    assert not Path("r.html").exists()


def test_compare_two_layouts(files, capsys, golden):
    assert main(["compare", "tp8.json", "--with", "dp2.json"]) == 0
    golden("report/compare.txt", capsys.readouterr().out)


def test_compare_takes_every_name_after_with(files, capsys):
    both = ["compare", "--json", "dp2.json", "--with", "dp2.json", "dp2.json"]
    assert main(both) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "apiary.comparison/v1"
    assert document["verdict"] == "no difference found"
    assert document["verdicts"][0]["b"]["n"] == 3  # the same engine runs, given twice


def test_one_engine_run_of_each_is_told_as_not_decided(files, capsys):
    for name, curve in (("one.json", DP2), ("half.json", Curve(0.03))):
        Path(name).write_text(dumps(bench("DP2/TP4/EP4", curve, steps=STEPS, engine_runs=1)))
    assert main(["compare", "one.json", "--with", "half.json"]) == 0
    assert capsys.readouterr().out.startswith("not decided between DP2/TP4/EP4 and DP2/TP4/EP4")
    assert main(["compare", "one.json", "--with", "half.json", "--regression", "--json"]) == 1
    assert findings(capsys) == ["BENCH-LIVES", "REPORT-NOT-DECIDED"]


def test_a_result_given_twice_is_one(files, capsys):
    assert main(["report", "dp2.json", "dp2.json", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["configurations"]
    assert len(one["benches"]) == 1


def test_a_benchmark_s_directory_is_its_result(files, capsys):
    Path("out").mkdir()
    Path("dp2.json").rename("out/bench.json")
    assert main(["report", "out"]) == 0
    assert "DP2/TP4/EP4" in capsys.readouterr().out
    Path("none").mkdir()
    assert main(["report", "none", "--json"]) == 1
    assert findings(capsys) == ["FILE-UNREADABLE"]


def test_compare_says_no_difference(files, capsys):
    assert main(["compare", "dp2.json", "--with", "dp2.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no difference found between DP2/TP4/EP4 and DP2/TP4/EP4")


def test_a_regression_is_an_error(files, capsys):
    command = ["compare", "dp2.json", "--with", "slower.json"]
    assert main([*command, "--json"]) == 0
    capsys.readouterr()
    assert main([*command, "--regression", "--json"]) == 1
    assert findings(capsys) == ["REPORT-REGRESSION"]
    assert main(["compare", "slower.json", "--with", "dp2.json", "--regression"]) == 0
    assert capsys.readouterr().out.startswith("DP2/TP4/EP4 is better than DP2/TP4/EP4")


def test_a_regression_without_an_earlier_result_is_an_error(files, capsys):
    command = ["compare", "tp8.json", "--with", "dp2.json", "--regression", "--json"]
    assert main(command) == 1
    assert findings(capsys) == ["BENCH-DIFFERS", "REPORT-NO-EARLIER"]
    assert main([*command, "--allow-first"]) == 0
    assert findings(capsys) == ["BENCH-DIFFERS", "REPORT-NO-EARLIER"]
    # It allows that there is none, not that it was faster.
    worse = ["compare", "dp2.json", "--with", "slower.json", "--regression", "--allow-first"]
    assert main(worse) == 1
    assert main(["compare", "dp2.json", "--with", "slower.json", "--allow-first"]) == 2


def test_reports_and_comparisons_match_their_schemas(files, capsys):
    assert main(["report", "dp2.json", "tp8.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == schema("report")["properties"]["schema"]["const"]
    jsonschema.validate(document, schema("report"))
    for more in ([], ["--regression", "--allow-first"]):
        assert main(["compare", "tp8.json", "--with", "dp2.json", "--json", *more]) == 0
        jsonschema.validate(json.loads(capsys.readouterr().out), schema("comparison"))


@pytest.mark.parametrize("words", [["compare", "a.json"], ["compare", "--with", "a.json"]])
def test_compare_needs_two_sides(files, capsys, words):
    assert main(words) == 2


def test_a_price_is_shown_wherever_a_rate_is(files, capsys, golden):
    price = ["--gpu-hour-price", "2.10 EUR"]
    assert main(["report", "dp2.json", *price]) == 0
    assert main(["compare", "tp8.json", "--with", "dp2.json", *price]) == 0
    assert main(["capacity", "dp2.json", "--rate", "100", *price]) == 0
    lines = capsys.readouterr().out.splitlines()
    golden("report/cost.txt", "\n".join(one for one in lines if "EUR" in one) + "\n")

    assert main(["compare", "tp8.json", "--with", "dp2.json", *price, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    jsonschema.validate(compared, schema("comparison"))
    assert [one["what"][:3] for one in compared["costs"]] == ["EUR"] * 3 + ["J p"] * 3
    assert main(["capacity", "dp2.json", "--rate", "100", *price, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["price"]["gpu_hour"] == 2.1
    assert main(["report", "dp2.json", "tp8.json", *price, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    jsonschema.validate(reported, schema("report"))
    costs = [one["searches"][0]["cost"] for one in reported["configurations"]]
    assert costs[0]["money"]["request"]["mean"] < costs[1]["money"]["request"]["mean"]


def test_what_is_no_price_is_one_error(files, capsys):
    assert main(["report", "dp2.json", "--gpu-hour-price", "-1", "--json"]) != 0
    assert findings(capsys) == ["BENCH-PRICE"]


def test_capacity_shows_its_arithmetic(files, capsys, golden):
    assert main(["capacity", "dp2.json", "--rate", "100", "--spare", "2"]) == 0
    golden("report/capacity.txt", capsys.readouterr().out)


def test_capacity_as_json(files, capsys):
    command = ["capacity", "dp2.json", "--rate", "100", "--slo", "ttft:p90:2s,tpot:p90:50ms"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["hosts"] == document["lines"][-1]["value"]
    assert document["target_rate"] == 100


@pytest.mark.parametrize("rate", ["1e300", "inf", "0", "-1"])
def test_a_rate_beyond_sense_is_wrong_usage(files, capsys, rate):
    assert main(["capacity", "dp2.json", f"--rate={rate}"]) == 2
    assert len(capsys.readouterr().err) < 500


def test_capacity_of_another_slo_is_refused(files, capsys):
    assert main(["capacity", "dp2.json", "--rate", "9", "--slo", "ttft:p90:1s", "--json"]) == 1
    assert findings(capsys) == ["REPORT-OTHER-SLO"]


def test_capacity_of_two_configurations_is_refused(files, capsys):
    assert main(["capacity", "dp2.json", "tp8.json", "--rate", "9", "--json"]) == 1
    assert findings(capsys) == ["CAPACITY-MIXED"]
