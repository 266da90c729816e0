# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters of tuning: the question, the state's file, trials and their records, the diff."""

import dataclasses
import json
import re
import subprocess
from types import SimpleNamespace

import jsonschema
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.action import tune
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Interval,
    Level,
    Load,
    Price,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Requested as BenchAsked,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    architecture_of,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import (
    candidates,
    request,
    saved,
    steps,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Choice,
    Outcome,
)

from apiary.app.schemas import schema
from support.bench.documents import bench
from support.demo import demo_deployment
from support.topology.simulated import simulated_evidence
from support.topology.topologies import mi325x

ASKED_LOAD = Workload("32/4", 32, 4)
BENCH_ASKED = BenchAsked(ASKED_LOAD, concurrency=(8,))
ARCHITECTURE = architecture_of(demo_deployment(), "demo")

ASKED = {
    "workload": "32/4",
    "slo": "",
    "concurrency": 16,
    "knobs": {"layouts": [], "max_num_seqs": [16, 32]},
    "budget": {"engine_runs": 2, "confirm_engine_runs": 0},
    "seed": 1,
    "measured_by": {},
}
# What hosts are compared by; that they may differ is tested with it.
EVIDENCE = simulated_evidence()


def hosts_of(*names, **changes):
    """What step host returns of each, alike but for the first one's changes."""
    own = {
        "deployment": to_document(demo_deployment()),
        "running": [],
        "planned": [],
        "topology": to_document(mi325x()),
        "evidence": EVIDENCE,
    }
    return {name: own | (changes if name == names[0] else {}) for name in names}


def question(*names, gone=(), hosts=None, **changes):
    return request.question(ASKED | changes, hosts or hosts_of(*names or ["gpu-001"]), [*gone])


def begun(*names, gone=(), **changes):
    hosts = hosts_of(*names or ["gpu-001"])
    return request.begun(question(gone=gone, hosts=hosts, **changes), hosts, [*gone])


def code_of(call, *given):
    with pytest.raises(ApiaryError) as refusal:
        call(*given)
    return refusal.value.findings[0].code


def test_the_question_is_read_from_what_an_operator_types():
    requested = question(slo="ttft:p90:2s", concurrency=None)
    assert requested.slo == (Limit("ttft", "p90", 2.0),)
    assert (requested.workload.input_tokens, requested.workload.output_tokens) == (32, 4)
    assert requested.layouts == ()
    assert requested.budget.engine_runs == 2


def test_a_deployment_over_several_hosts_is_refused():
    deployment = to_document(demo_deployment())
    deployment["layout"] = {"tensor_parallel_size": 16, "nodes": 2}
    wide = hosts_of("gpu-001", deployment=deployment)
    assert code_of(request.question, ASKED, wide, []) == "TRIAL-NODES"


def test_another_question_does_not_go_on_with_the_state():
    state = begun()
    assert request.same(state, state.requested, "state.json") is state
    other = dataclasses.replace(state.requested, concurrency=32)
    assert code_of(request.same, state, other, "state.json") == "TRIAL-STATE"
    # Nor does one that another client measures.
    again = question(measured_by={"backend": "builtin"})
    assert code_of(request.same, state, again, "state.json") == "TRIAL-STATE"


def test_a_host_that_is_gone_need_not_be_there_to_go_on():
    state = begun("a", "b")
    assert request.same(state, question("b"), "x") is state
    more = question("a", "c")
    assert code_of(request.same, state, more, "x") == "TRIAL-STATE"


def test_a_named_host_that_cannot_be_reached_is_left_out_with_the_reason():
    state = begun("b", gone=["a"])
    assert [(one.name, one.used) for one in state.hosts] == [("b", True), ("a", False)]
    assert [(one.code, one.subject) for one in state.findings] == [("TRIAL-HOST-GONE", "a")]
    # When it is back, the question is the same, and it still takes no part.
    back = question("a", "b")
    assert request.same(state, back, "x") is state


def test_check_mode_shows_what_would_be_tried_and_who_takes_no_part(tmp_path, monkeypatch):
    shown = []
    display = SimpleNamespace(display=shown.append, warning=lambda text: None)
    monkeypatch.setattr(tune, "DISPLAY", display)
    (host,) = hosts_of("gpu-001").values()
    given = ASKED | {"artifacts": str(tmp_path), "results": [], "restart": False}
    variables = {
        "ansible_play_hosts": ["gpu-001"],
        "groups": {"tune_gone": ["gpu-002"]},
        "hostvars": {"gpu-001": {tune.HOST: host}},
    }
    checking = SimpleNamespace(_task=SimpleNamespace(check_mode=True))
    tune.ActionModule._begin(checking, given, variables)
    text = "\n".join(shown)
    assert "max_num_seqs=16  not measured" in text
    assert "host gpu-002 took no part: could not be reached" in text
    assert list(tmp_path.iterdir()) == []


def test_two_runs_do_not_go_on_with_one_tuning(tmp_path, monkeypatch):
    """Hosts are locked each by itself, and the other run may have other hosts."""
    state = tmp_path / "tune/x/state.json"
    saved.acquire(state)
    with subprocess.Popen(["sleep", "60"]) as other:
        theirs = re.sub(r"\d+$", str(other.pid), saved.owner())
        saved.acquire(state)  # our own
        monkeypatch.setattr(saved, "owner", lambda: theirs)
        # Whoever has it, engine runs: this test's own parent.
        assert code_of(saved.acquire, state) == "TRIAL-LOCKED"
        saved.release(state)
        assert code_of(saved.ensure_acquired, state) == "TRIAL-LOCKED"
        saved.acquire(state, take_over=True)
        monkeypatch.undo()
        assert code_of(saved.ensure_acquired, state) == "TRIAL-LOCKED"
        other.kill()
    # A dead one is in nobody's way.
    saved.acquire(state)
    saved.release(state)
    monkeypatch.setattr(saved, "owner", lambda: "ann@elsewhere, process 1")
    saved.acquire(state)


def test_a_lock_is_not_set_aside_with_what_was_measured(tmp_path):
    saved.acquire(tmp_path / "state.json")
    saved.set_aside(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [saved.LOCK]


def test_what_was_not_checked_is_said_with_the_choice(tmp_path):
    """Two levels of one trial: of one the client's own delay is not known."""
    untested = Finding.from_fields(
        code="BENCH-UNTESTED",
        severity="info",
        subject="x",
        message="no self-test",
        remedy="run it",
        source=None,
    )
    levels = tuple(
        Level(Load("fixed", ASKED_LOAD, 80, 8, repeat=repeat), "OK", None, findings=found)
        for repeat, found in enumerate(((untested,), ()))
    )
    state = answered()
    first = dataclasses.replace(state.trials[0].outcome, path="short/bench.json")
    trials = (dataclasses.replace(state.trials[0], outcome=first), *state.trials[1:])
    state = dataclasses.replace(state, trials=trials)
    bench = Bench("x", "2026-11-22T05:00:00Z", Target(("http://a",), "a/b"), BENCH_ASKED, levels)
    (tmp_path / "short").mkdir()
    (tmp_path / "short/bench.json").write_text(dumps(bench))
    (note,) = saved.doubted(state, tmp_path).findings
    assert (note.code, note.severity) == ("BENCH-UNPROVEN", "warning")
    assert "1 of 2 levels" in note.message
    assert saved.doubted(dataclasses.replace(state, choice=None), tmp_path).findings == ()
    # What is not there any more cannot be doubted.
    assert saved.doubted(state, tmp_path / "elsewhere").findings == ()


def test_a_choice_says_what_it_takes_to_serve(tmp_path):
    state = answered()
    finals = []
    for number in range(2):
        path = f"final-{number}/bench.json"
        made = bench("x", engine_runs=1, open_loop=False, stress=(), seed=number, price=Price(2.0))
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(dumps(made))
        outcome = Outcome("measured", path=path)
        finals.append(
            dataclasses.replace(
                state.trials[0], id=f"final-{number}", kind="final", candidate="current",
                engine_run=number, outcome=outcome,
            )
        )  # fmt: skip
    state = saved.doubted(dataclasses.replace(state, trials=tuple(finals)), tmp_path)

    # A run whose numbers mean nothing costs nothing either.
    wrong = dataclasses.replace(finals[1].outcome, status="invalid")
    broken = (finals[0], dataclasses.replace(finals[1], outcome=wrong))
    alone = saved.doubted(dataclasses.replace(state, trials=broken), tmp_path).costs["current"]
    assert alone.text == saved.doubted(
        dataclasses.replace(state, trials=(finals[0],)), tmp_path
    ).costs["current"].text  # fmt: skip

    cost = state.costs["current"]
    assert cost.money.request.n == cost.joules.request.n == 2
    label = state.candidate("current").label
    lines = [line for line in summary.summary(state) if " per request: " in line]
    assert [line.split(":")[0].strip() for line in lines] == [label, label]
    assert "USD per million output tokens" in lines[0]
    jsonschema.validate(to_document(state), schema("tune"))


def test_what_others_run_counts_and_not_what_they_are_to_run():
    running = build_plans((PlanRequest(demo_deployment(), ARCHITECTURE),), mi325x())[0]
    document = to_document(dataclasses.replace(demo_deployment(), name="tuned", base_port=9000))
    document["layout"] = {"tensor_parallel_size": 4, "replicas": 1}
    hosts = hosts_of("gpu-001", deployment=document, running=[to_document(running)])
    assert sum(len(one.gpus) for one in running.replicas) == 8
    # The other one holds all GPUs of the host.
    assert code_of(request.begun, question(hosts=hosts), hosts, []) == "TRIAL-NOTHING"


def test_the_winner_written_down_is_no_other_question():
    state = answered()
    winner = candidates.deployment_of(state, state.choice.candidate)
    written = dataclasses.replace(state.requested, deployment=winner)
    assert request.same(state, written, "state.json") is state
    # What was found is no answer to something else that is asked of the winner.
    for other in ({"concurrency": 32}, {"seed": 2}, {"measured_by": {"backend": "vllm"}}):
        requested = dataclasses.replace(written, **other)
        assert code_of(request.same, state, requested, "state.json") == "TRIAL-STATE"


def test_what_an_earlier_tuning_measured_is_not_taken_for_the_new_ones(tmp_path):
    for number in ("1", "2"):
        (tmp_path / "short-current-0-a/raw").mkdir(parents=True)
        (tmp_path / "state.json").write_text(number)
        saved.set_aside(tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["earlier"]
        assert (tmp_path / "earlier" / number / "state.json").read_text() == number
        assert (tmp_path / "earlier" / number / "short-current-0-a/raw").is_dir()
    saved.set_aside(tmp_path)
    assert len(list((tmp_path / "earlier").iterdir())) == 2


def test_a_state_that_is_damaged_is_refused(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("{")
    assert code_of(saved.read_state, path) == "TRIAL-STATE"
    path.write_text(dumps(begun()))
    assert saved.read_state(path) == begun()


def test_a_host_is_told_all_that_it_needs_for_its_trial():
    told = steps.assignments(begun(), ["gpu-001"], [])
    assert set(told) == {"gpu-001"}
    assert told["gpu-001"]["load_host"] == "gpu-001"
    assert told["gpu-001"]["deployment"]["name"] == demo_deployment().name
    assert told["gpu-001"]["requested"]["concurrency"] == [16]
    assert json.dumps(told)


def test_a_load_host_measures_one_host_at_a_time():
    state = begun("a", "b")
    assert set(steps.assignments(state, ["a", "b"], [])) == {"a", "b"}
    assert set(steps.assignments(state, ["a", "b"], ["load-1"])) == {"a"}
    both = steps.assignments(state, ["a", "b"], ["load-1", "load-2"])
    assert [one["load_host"] for one in both.values()] == ["load-1", "load-2"]


def test_a_lost_load_host_is_held_against_no_candidate():
    state = begun("a", "b")
    assigned = steps.assignments(state, ["a", "b"], ["load-1", "load-2"])
    lost_there = {"outcome": {"status": "lost", "cause": "gone"}, "load_lost": True}
    told = {"a": lost_there, "b": {"outcome": {"status": "failed"}, "load_lost": False}}
    after = steps.record_all(state, assigned, told, now=assigned["a"]["began"])
    assert [one.host for one in after.trials] == ["b"]
    lost = steps.lost_load_hosts(assigned, told)
    assert lost == ["load-1"]
    left = steps.assignments(after, ["a", "b"], ["load-1", "load-2"], lost)
    assert [(host, one["load_host"]) for host, one in left.items()] == [("a", "load-2")]
    # Without any, no host begins to load itself.
    assert steps.assignments(after, ["a", "b"], ["load-1"], lost) == {}
    # A host that loads itself is lost as a GPU host is.
    alone = steps.assignments(state, ["a"], [])
    assert steps.lost_load_hosts(alone, told) == []
    assert steps.record_all(state, alone, told, now=0).trials[0].outcome.status == "lost"


def test_what_an_interrupted_trial_left_is_of_another_engine_run(tmp_path):
    for _ in range(2):
        (tmp_path / "short-a-0-x/raw").mkdir(parents=True)
        saved.set_trials_aside(tmp_path, ["short-a-0-x", "short-b-0-x"])
    kept = sorted(one.name for one in (tmp_path / "interrupted").iterdir())
    assert kept == ["short-a-0-x-1", "short-a-0-x-2"]
    assert [one.name for one in tmp_path.iterdir()] == ["interrupted"]


def test_every_assigned_trial_is_recorded_and_a_silent_host_is_lost():
    state = begun("a", "b")
    assigned = steps.assignments(state, ["a", "b"], [])
    crashed = {"outcome": {"status": "failed", "cause": "ValueError: no"}}
    after = steps.record_all(state, assigned, {"a": crashed}, now=5.0)
    ended = {one.host: one.outcome for one in after.trials}
    assert (ended["a"].status, ended["a"].cause) == ("failed", "ValueError: no")
    assert ended["a"].seconds == pytest.approx(5)
    assert ended["b"].status == "lost"
    lines = [*steps.results_of(after, assigned)]
    assert any("ValueError: no" in line for line in lines)
    # A run that was killed after it had written does not count a trial twice.
    assert steps.record_all(after, assigned, {"a": crashed}, now=0) == after


def answered():
    """A tuning in which 32 sequences are the fastest by far."""
    state = begun()
    for _ in range(steps.most(state)):
        for trial in steps.assign(state, ["gpu-001"]):
            seqs = candidates.deployment_of(state, trial.candidate).limits.max_num_seqs or 1
            score = float(seqs) * (1 + trial.engine_run / 100)
            state = steps.record(state, trial, Outcome("measured", Interval(1, score), seconds=1))
    return state


def test_the_winner_is_a_file_of_variables_and_a_difference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = answered()
    assert state.choice.verdict == "better"
    text, diff = summary.variables_of(state, tmp_path / "state.json")
    assert text.startswith("---\n# Measured by playbooks/tune.yml: state.json\n")
    winner = candidates.deployment_of(state, summary.winner_of(state))
    assert from_document(Deployment, yaml.safe_load(text)["apiary_deployment"], "x") == winner
    changed = [line for line in diff.splitlines() if line[:1] in "+-"]
    assert "+    max_num_seqs: 32" in changed


@pytest.mark.parametrize("choice", [None, Choice("current", "current is best", "")])
def test_where_nothing_is_to_change_there_is_no_diff(tmp_path, choice):
    state = dataclasses.replace(answered(), choice=choice)
    assert summary.winner_of(state) is None
    assert summary.variables_of(state, tmp_path) == ("", "")


def test_hosts_are_compared_with_the_first_one_by_all_that_was_reported():
    other = to_document(demo_deployment())
    other["engine"]["version"] = "0.1.0"
    hosts = hosts_of("a") | hosts_of("b", deployment=other)
    state = request.begun(question(hosts=hosts), hosts, [])
    (differs,) = (one for one in state.findings if one.code == "TRIAL-HOSTS-DIFFER")
    assert differs.subject == "b"
    assert differs.message.startswith("engine: ")


def test_a_client_is_asked_for_its_version_once():
    assigned = {"h": {"load_host": "l1"}, "i": {"load_host": "l2"}}
    ended = {"h": {"client": "0.33.0"}, "i": {"client": None}}
    versions = steps.client_versions(assigned, ended, {"l0": "1"})
    assert versions == {"l0": "1", "l1": "0.33.0"}
