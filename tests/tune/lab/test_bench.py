# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/bench.yml through a router and over restarts of the engines: about a minute."""

import json
import os
import signal
import subprocess

import pytest

from loss.fleet import ROOT, await_true

ASKED = {
    "bench_engine_runs": 2,
    "bench_workload": "32/4",
    "bench_requested": {"phases": ["fixed"], "concurrency": [8], "repeats": 1},
    "bench_rules": {"requests_least": 80, "warmup_most": 1},
    "bench_backend": "builtin",
    "bench_self_test": False,
    # It has no engine to disturb, and is told the engines' own pages of metrics.
    "bench_load_host": "router-001",
}
WANTED = ("-e", json.dumps({"bench_restart_serving": True}))


@pytest.fixture(scope="module")
def place(operator):
    return operator.artifacts / "bench/routed"


@pytest.fixture(scope="module")
def requested(place):
    return ("-e", json.dumps({**ASKED, "bench_out": str(place)}))


def measured(place):
    """When each raw result was written, by its file."""
    return {path.name: path.stat().st_mtime_ns for path in place.glob("raw/*.json.gz")}


@pytest.fixture(scope="module")
def interrupted(operator, place, requested):
    """The replicas' starts before a run that was killed when its first engine run was measured."""
    before = operator.engine_runs()
    with subprocess.Popen(
        operator.command("bench", *requested, *WANTED),
        cwd=ROOT,
        env=operator.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        try:
            await_true(
                lambda: len(measured(place)) >= 2 or running.poll() is not None, 120, "a level"
            )
            assert running.poll() is None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    return before, measured(place)


@pytest.fixture(scope="module")
def resumed(operator, interrupted, requested):
    reported = operator.play("bench", *requested, *WANTED)
    assert reported.code == 0, reported.text
    return reported


def test_engines_that_a_router_sends_requests_to_are_not_restarted_unasked(operator, requested):
    before = operator.engine_runs()
    reported = operator.play("bench", *requested)
    assert reported.code != 0
    assert "BENCH-SERVING: qwen3-235b" in reported.text
    assert operator.engine_runs() == before


def test_what_was_measured_before_the_interruption_stays(interrupted, resumed, place):
    _before, kept = interrupted
    assert resumed.code == 0
    assert len(kept) == 2  # warm-up and level of the first engine run
    now = measured(place)
    assert {name: now[name] for name in kept} == kept
    assert len(now) == 4


def test_the_load_goes_through_the_router_and_over_two_engine_runs(
    operator, interrupted, resumed, place
):
    bench = json.loads((place / "bench.json").read_text())
    fleet = operator.fleet
    host, port = fleet.endpoint("router-001")
    assert resumed.code == 0
    assert bench["target"]["urls"] == [f"http://{host}:{port}"]
    addresses = [(fleet.hosts[one.host]["address_in_lab"], one.port) for one in fleet.replicas]
    assert bench["target"]["metrics"] == [f"http://{ip}:{port}/metrics" for ip, port in addresses]
    levels = [one for one in bench["levels"] if one["load"]["phase"] == "fixed"]
    assert [(one["load"]["engine_run"], one["status"]) for one in levels] == [(0, "OK"), (1, "OK")]
    assert bench["environment"]["hosts"] == ["gpu-001", "gpu-002"]
    # Every engine was started anew, and the router uses all of them again.
    before, _kept = interrupted
    now = operator.engine_runs()
    assert all(now[name] != before[name] for name in before)
    fleet.await_whole()


def test_requested_once_more_it_measures_and_restarts_nothing(operator, resumed, requested, place):
    before, engine_runs = measured(place), operator.engine_runs()
    reported = operator.play("bench", *requested, *WANTED)
    assert (resumed.code, reported.code) == (0, 0)
    assert "changed=0" in reported.text
    assert "changed=1" not in reported.text
    assert (measured(place), operator.engine_runs()) == (before, engine_runs)


def test_its_report_is_written(operator, resumed, place, tmp_path):
    assert f"apiary report {place}/bench.json" in resumed.text
    page = tmp_path / "report.html"
    done = subprocess.run(
        ["apiary", "report", place / "bench.json", "--out", page],
        env=operator.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "qwen3-235b" in page.read_text()
