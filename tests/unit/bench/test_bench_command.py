# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary bench` as a person types it, against the simulator; no test depends on how fast it is."""

import gzip
import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)

from apiary.app.cli import main
from support.bench.engine import engine
from support.demo import demo_plan

KEY = "sk-planted-4711"
# Levels of a second: few requests, no warm-up that must agree.
SHORT = (
    "--backend=builtin",
    "--workload=16/4",
    "--phases=scaling",
    "--concurrency=1",
    "--rule=requests_least=20",
    "--rule=warmup_most=1",
    "--out=out",
)


@pytest.fixture(scope="module")
def url():
    with engine() as url:
        yield url


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return tmp_path


def result():
    return from_document(Bench, json.loads(Path("out/bench.json").read_text()), "bench.json")


def raws():
    return {path.name: path.stat().st_mtime_ns for path in Path("out/raw").iterdir()}


def codes(capsys):
    return [one["code"] for one in json.loads(capsys.readouterr().err)["findings"]]


def test_levels_are_measured_kept_and_shown(url, capsys, monkeypatch):
    """One benchmark with a plan and a key; its directory goes on, and takes no other engine."""
    Path("key").write_text(f"{KEY}\n")
    Path("plan.json").write_text(dumps(demo_plan()))
    original, secrets = bench_run.run, []

    def run(request):
        secrets.append(request.pop("secrets"))
        assert KEY not in json.dumps(request)
        return original({**request, "secrets": secrets[-1]})

    monkeypatch.setattr(bench_run, "run", run)
    more = ["--api-key-file=key", "--plan=plan.json", f"--model={served(url)}"]
    # Whether levels are valid is for a machine with idle cores.
    assert main(["bench", url, *SHORT, *more]) in (0, 1)
    assert secrets[0] == {"OPENAI_API_KEY": KEY}
    shown, bench = capsys.readouterr(), result()
    assert {level.load.concurrency for level in bench.levels if level.load.phase == "scaling"} >= {
        1
    }
    for level in bench.levels:
        assert (Path("out") / level.raw).is_file()
        assert level.measured.failed == 0
        assert level.client.ttft_error_p90 is not None  # it was tested
    assert bench.target.urls == (url,)
    assert bench.target.gpus == 8
    assert bench.environment["client"]["backend"] == "builtin"
    assert bench.environment["command"][0] == "apiary"
    assert bench.environment["apiary"]
    assert bench.environment["layout"] == "DP2/TP4/EP4"
    assert len(bench.environment["plan_hash"]) == 64
    assert bench.environment["rules"] == {"requests_least": 20, "warmup_most": 1}
    assert "scaling: 16/4, 1 concurrent" in shown.err
    assert "16/4" in shown.out
    assert "out/bench.json" in shown.out
    assert KEY not in shown.out + shown.err
    assert all(KEY not in path.read_text() for path in Path("out").rglob("*.json"))
    assert all(KEY not in str(bench_of(path)) for path in Path("out/raw").iterdir())

    main(["bench", url, *SHORT, *more, "--no-self-test", "--json"])
    assert json.loads(capsys.readouterr().out)["requested"]["seed"] == bench.requested.seed
    main(["bench", url, *SHORT, "--no-self-test", "--out=two", "--json"])
    assert json.loads(capsys.readouterr().out)["requested"]["seed"] != bench.requested.seed
    assert main(["bench", url, url, *SHORT, *more, "--no-self-test", "--json"]) == 1
    assert codes(capsys) == ["BENCH-OTHER"]


def test_each_engine_run_begins_with_a_restart(url, capsys):
    note = Path("restarts").absolute()
    arguments = [url, *SHORT, "--no-self-test", "--engine-runs=2", "--json"]
    assert main(["bench", *arguments, "--restart-command=/bin/false"]) == 1
    assert codes(capsys) == ["BENCH-RESTART"]
    main(["bench", *arguments, f"--restart-command=/bin/sh -c 'echo again >> {note}'"])
    assert note.read_text() == "again\n"
    assert {level.load.engine_run for level in result().levels} == {0, 1}
    capsys.readouterr()


def test_a_run_goes_on_where_it_was_interrupted(url, capsys, monkeypatch):
    arguments = ["bench", url, *SHORT, "--no-self-test", "--concurrency=1,2"]
    original, requested = bench_run.run, []

    def run(request):
        requested.append(request["do"])
        if len(requested) == 3:
            raise KeyboardInterrupt
        return original(request)

    monkeypatch.setattr(bench_run, "run", run)
    assert main(arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err
    kept = raws()
    assert len(kept) == 1
    main(arguments)
    assert kept.items() <= raws().items()  # not measured again
    # On a busy machine a level may be INVALID, and is then measured once more.
    spoiled = [level for level in result().levels if level.status not in ("OK", "SLO_MISS")]
    measured = len(requested)
    main(arguments)
    assert requested[measured] == "inspect"
    assert len(requested) - measured - 1 <= 3 * len(spoiled)
    assert "(measured before)" in capsys.readouterr().err


def bench_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("BENCH-UNREACHABLE", ["http://127.0.0.1:1"]),
        ("BENCH-MODEL", ["URL", "--model=other/model"]),
        ("BENCH-METRICS", ["URL", "--metrics=http://127.0.0.1:1/metrics"]),
        ("BENCH-CLIENT", ["URL", "--backend=vllm", "--command=/no/such/vllm"]),
        ("BENCH-WORKLOAD", ["URL", "--workload=many"]),
        ("FILE-UNREADABLE", ["--plan=none.json"]),
    ],
)
def test_what_is_wrong_is_one_finding_before_any_level(url, capsys, code, arguments):
    words = [url if word == "URL" else word for word in arguments]
    assert main(["bench", *SHORT, *words, "--json"]) == 1
    assert codes(capsys) == [code]
    assert not Path("out/raw").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["gpu-001:8000"],
        ["http://a", "--phases=scaling,other"],
        ["http://a", "--concurrency=1,x"],
        ["http://a", "--request-rate=0"],
        ["http://a", "--engine-runs=2"],
        ["http://a", "--vision"],
        ["http://a", "--rule=none=1"],
        ["http://a", "--rule=requests_least=many"],
        ["http://a", "--rule=gain=nan"],
        ["http://a", "--rule=gain=inf"],
        ["http://a", "--request-rate=inf"],
        ["http://a", "--request-rate=nan"],
        ["http://a", "--timeout=inf"],
        ["http://a", "--timeout=nan"],
        ["http://a", "--client-cpus=apart"],
        ["http://a", "--client-cpus=x"],
    ],
)
def test_wrong_usage_is_told_as_such(capsys, arguments):
    assert main(["bench", *arguments]) == 2
    assert "Error" in capsys.readouterr().err


def test_a_password_in_a_url_is_refused_and_not_repeated(capsys):
    assert main(["bench", f"http://user:{KEY}@127.0.0.1:1", *SHORT, "--json"]) == 1
    shown = capsys.readouterr()
    (finding,) = json.loads(shown.err)["findings"]
    assert finding["code"] == "BENCH-URL"
    assert KEY not in shown.out + shown.err
    assert not Path("out").exists()


def test_a_result_that_answers_nothing_ends_with_an_error(url, capsys, monkeypatch):
    # The client ends with an error in every level, but for the warm-up's.
    original = bench_run.run

    def run(request):
        answer = original(request)
        if request["do"] == "level" and request["load"]["phase"] != "warmup":
            answer["exit_codes"] = [1]
        return answer

    monkeypatch.setattr(bench_run, "run", run)
    assert main(["bench", url, *SHORT, "--no-self-test", "--json"]) == 1
    assert "BENCH-NO-ANSWER" in codes(capsys)


def served(url):
    status, text = bench_run.ask(f"{url}/v1/models", 30)
    assert status == 200
    return json.loads(text)["data"][0]["id"]
