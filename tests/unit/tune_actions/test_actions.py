# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters of tuning: the question, the state's file, trials and their records, the diff."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.action import (
    tune_begin,
    tune_end,
    tune_host,
    tune_next,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Interval,
    Level,
    Load,
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
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import candidates, steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Choice,
    Outcome,
)

from support.demo import demo_deployment
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
    "ablate": "",
    "seed": 1,
    "hosts": ["gpu-001"],
    "running": [],
    "measured_by": {},
    "others": [],
    "evidence": {},
    "engines": {},
    "neighbours": {},
    "gone": [],
}


def arguments(**changes):
    deployment = to_document(demo_deployment())
    topologies = {name: to_document(mi325x()) for name in changes.get("hosts", ["gpu-001"])}
    return {**ASKED, "deployment": deployment, "topologies": topologies, **changes}


def begun(**changes):
    given = arguments(**changes)
    return tune_begin.begun(tune_begin.question(given), given)


def code_of(call, *given):
    with pytest.raises(ApiaryError) as refusal:
        call(*given)
    return refusal.value.findings[0].code


def test_the_question_is_read_from_what_an_operator_types():
    requested = tune_begin.question(arguments(slo="ttft:p90:2s", concurrency=None))
    assert requested.slo == (Limit("ttft", "p90", 2.0),)
    assert (requested.workload.input_tokens, requested.workload.output_tokens) == (32, 4)
    assert requested.layouts == ()
    assert requested.budget.engine_runs == 2


def test_a_deployment_over_several_hosts_is_refused():
    given = arguments()
    given["deployment"]["layout"] = {"tensor_parallel_size": 16, "nodes": 2}
    assert code_of(tune_begin.question, given) == "TRIAL-NODES"


def test_another_question_does_not_go_on_with_the_state():
    state = begun()
    assert tune_begin.same(state, state.requested, "state.json") is state
    other = dataclasses.replace(state.requested, concurrency=32)
    assert code_of(tune_begin.same, state, other, "state.json") == "TRIAL-STATE"
    # Nor does one that another client measures.
    again = tune_begin.question(arguments(measured_by={"backend": "builtin"}))
    assert code_of(tune_begin.same, state, again, "state.json") == "TRIAL-STATE"


def test_a_host_that_is_gone_need_not_be_there_to_go_on():
    state = begun(hosts=["a", "b"])
    assert tune_begin.same(state, tune_begin.question(arguments(hosts=["b"])), "x") is state
    more = tune_begin.question(arguments(hosts=["a", "c"]))
    assert code_of(tune_begin.same, state, more, "x") == "TRIAL-STATE"


def test_a_named_host_that_cannot_be_reached_is_left_out_with_the_reason():
    given = arguments(hosts=["b"], gone=["a"])
    state = tune_begin.begun(tune_begin.question(given), given)
    assert [(one.name, one.used) for one in state.hosts] == [("b", True), ("a", False)]
    assert [(one.code, one.subject) for one in state.findings] == [("TRIAL-HOST-GONE", "a")]
    # When it is back, the question is the same, and it still takes no part.
    back = tune_begin.question(arguments(hosts=["a", "b"]))
    assert tune_begin.same(state, back, "x") is state


def test_check_mode_shows_what_would_be_tried_and_who_takes_no_part(tmp_path, monkeypatch):
    shown = []
    display = SimpleNamespace(display=shown.append, warning=lambda text: None)
    monkeypatch.setattr(tune_begin, "DISPLAY", display)
    deployment = to_document(demo_deployment())
    host = {"deployment": deployment, "running": [], "planned": []}
    given = arguments(
        hosts={"gpu-001": host}, gone=["gpu-002"], load_hosts={}, restart=False, take_over=False
    ) | {"artifacts": str(tmp_path), "topologies": {"gpu-001": to_document(mi325x())}}
    checking = SimpleNamespace(_task=SimpleNamespace(check_mode=True))
    tune_begin.ActionModule.decide(checking, given, {})
    text = "\n".join(shown)
    assert "max_num_seqs=16  not measured" in text
    assert "host gpu-002 took no part: could not be reached" in text
    assert list(tmp_path.iterdir()) == []


def test_two_runs_do_not_go_on_with_one_tuning(tmp_path, monkeypatch):
    """Hosts are locked each by itself, and the other run may have other hosts."""
    state = tmp_path / "tune/x/state.json"
    tune_next.acquire(state)
    with subprocess.Popen(["sleep", "60"]) as other:
        theirs = re.sub(r"\d+$", str(other.pid), tune_next.owner())
        tune_next.acquire(state)  # our own
        monkeypatch.setattr(tune_next, "owner", lambda: theirs)
        # Whoever has it, engine runs: this test's own parent.
        assert code_of(tune_next.acquire, state) == "TRIAL-LOCKED"
        tune_next.release(state)
        assert code_of(tune_next.ensure_acquired, state) == "TRIAL-LOCKED"
        tune_next.acquire(state, take_over=True)
        monkeypatch.undo()
        assert code_of(tune_next.ensure_acquired, state) == "TRIAL-LOCKED"
        other.kill()
    # A dead one is in nobody's way.
    tune_next.acquire(state)
    tune_next.release(state)
    monkeypatch.setattr(tune_next, "owner", lambda: "ann@elsewhere, process 1")
    tune_next.acquire(state)


def test_a_lock_is_not_set_aside_with_what_was_measured(tmp_path):
    tune_next.acquire(tmp_path / "state.json")
    tune_begin.set_aside(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [tune_next.LOCK]


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
    (note,) = tune_next.doubted(state, tmp_path).findings
    assert (note.code, note.severity) == ("BENCH-UNPROVEN", "warning")
    assert "1 of 2 levels" in note.message
    assert tune_next.doubted(dataclasses.replace(state, choice=None), tmp_path).findings == ()
    # What is not there any more cannot be doubted.
    assert tune_next.doubted(state, tmp_path / "elsewhere").findings == ()


def test_what_others_run_counts_and_not_what_they_are_to_run():
    running = build_plans((PlanRequest(demo_deployment(), ARCHITECTURE),), mi325x())[0]
    document = to_document(dataclasses.replace(demo_deployment(), name="tuned", base_port=9000))
    given = {**arguments(running=[to_document(running)]), "deployment": document}
    given["deployment"]["layout"] = {"tensor_parallel_size": 4, "replicas": 1}
    assert sum(len(one.gpus) for one in running.replicas) == 8
    # The other one holds all GPUs of the host.
    assert code_of(tune_begin.begun, tune_begin.question(given), given) == "TRIAL-NOTHING"


def test_the_winner_written_down_is_no_other_question():
    state = answered()
    winner = candidates.deployment_of(state, state.choice.candidate)
    written = dataclasses.replace(state.requested, deployment=winner)
    assert tune_begin.same(state, written, "state.json") is state
    # What was found is no answer to something else that is asked of the winner.
    for other in ({"concurrency": 32}, {"seed": 2}, {"measured_by": {"backend": "vllm"}}):
        requested = dataclasses.replace(written, **other)
        assert code_of(tune_begin.same, state, requested, "state.json") == "TRIAL-STATE"


def test_what_an_earlier_tuning_measured_is_not_taken_for_the_new_ones(tmp_path):
    for number in ("1", "2"):
        (tmp_path / "short-current-0-a/raw").mkdir(parents=True)
        (tmp_path / "state.json").write_text(number)
        tune_begin.set_aside(tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["earlier"]
        assert (tmp_path / "earlier" / number / "state.json").read_text() == number
        assert (tmp_path / "earlier" / number / "short-current-0-a/raw").is_dir()
    tune_begin.set_aside(tmp_path)
    assert len(list((tmp_path / "earlier").iterdir())) == 2


def test_a_state_that_is_damaged_is_refused(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("{")
    assert code_of(tune_next.read_state, str(path)) == "TRIAL-STATE"
    path.write_text(dumps(begun()))
    assert tune_next.read_state(str(path)) == begun()


def test_a_host_is_told_all_that_it_needs_for_its_trial():
    told = tune_next.assignments(begun(), ["gpu-001"], [])
    assert set(told) == {"gpu-001"}
    assert told["gpu-001"]["load_host"] == "gpu-001"
    assert told["gpu-001"]["deployment"]["name"] == demo_deployment().name
    assert told["gpu-001"]["requested"]["concurrency"] == [16]
    assert json.dumps(told)


def test_a_load_host_measures_one_host_at_a_time():
    state = begun(hosts=["a", "b"])
    assert set(tune_next.assignments(state, ["a", "b"], [])) == {"a", "b"}
    assert set(tune_next.assignments(state, ["a", "b"], ["load-1"])) == {"a"}
    both = tune_next.assignments(state, ["a", "b"], ["load-1", "load-2"])
    assert [one["load_host"] for one in both.values()] == ["load-1", "load-2"]


def test_a_lost_load_host_is_held_against_no_candidate():
    state = begun(hosts=["a", "b"])
    assigned = tune_next.assignments(state, ["a", "b"], ["load-1", "load-2"])
    told = {"a": {"stage": "load", "message": "gone"}, "b": {"stage": "start", "message": "x"}}
    after = tune_next.record(state, assigned, told, now=assigned["a"]["began"])
    assert [one.host for one in after.trials] == ["b"]
    lost = tune_next.lost_load_hosts(assigned, told)
    assert lost == ["load-1"]
    left = tune_next.assignments(after, ["a", "b"], ["load-1", "load-2"], lost)
    assert [(host, one["load_host"]) for host, one in left.items()] == [("a", "load-2")]
    # Without any, no host begins to load itself.
    assert tune_next.assignments(after, ["a", "b"], ["load-1"], lost) == {}
    # A host that loads itself is lost as a GPU host is.
    alone = tune_next.assignments(state, ["a"], [])
    assert tune_next.lost_load_hosts(alone, told) == []
    assert tune_next.record(state, alone, told, now=0).trials[0].outcome.status == "lost"


def test_what_an_interrupted_trial_left_is_of_another_engine_run(tmp_path):
    for _ in range(2):
        (tmp_path / "short-a-0-x/raw").mkdir(parents=True)
        tune_next.set_aside(tmp_path, ["short-a-0-x", "short-b-0-x"])
    kept = sorted(one.name for one in (tmp_path / "interrupted").iterdir())
    assert kept == ["short-a-0-x-1", "short-a-0-x-2"]
    assert [one.name for one in tmp_path.iterdir()] == ["interrupted"]


def test_every_assigned_trial_is_recorded_and_a_silent_host_is_lost():
    state = begun(hosts=["a", "b"])
    assigned = tune_next.assignments(state, ["a", "b"], [])
    crashed = {"stage": "start", "message": "x", "journal": "ValueError: no"}
    after = tune_next.record(state, assigned, {"a": crashed}, now=assigned["a"]["began"] + 5)
    ended = {one.host: one.outcome for one in after.trials}
    assert (ended["a"].status, ended["a"].cause) == ("failed", "ValueError: no")
    assert ended["a"].seconds == pytest.approx(5)
    assert ended["b"].status == "lost"
    lines = tune_next.results_of(after, assigned)
    assert any("ValueError: no" in line for line in lines)
    # A run that was killed after it had written does not count a trial twice.
    assert tune_next.record(after, assigned, {"a": crashed}, now=0) == after


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
    text, diff = tune_end.variables_of(state, tmp_path / "state.json")
    assert text.startswith("---\n# Measured by playbooks/tune.yml: state.json\n")
    winner = candidates.deployment_of(state, tune_end.winner_of(state))
    assert from_document(Deployment, yaml.safe_load(text)["apiary_deployment"], "x") == winner
    changed = [line for line in diff.splitlines() if line[:1] in "+-"]
    assert "+    max_num_seqs: 32" in changed


@pytest.mark.parametrize("choice", [None, Choice("current", "current is best", "")])
def test_where_nothing_is_to_change_there_is_no_diff(tmp_path, choice):
    state = dataclasses.replace(answered(), choice=choice)
    assert tune_end.winner_of(state) is None
    assert tune_end.variables_of(state, tmp_path) == ("", "")


def test_a_server_that_any_router_has_ready_is_ready():
    answers = [
        {"x/a-0": {"state": "drain"}, "y/a-0": {"state": "ready"}},
        {"x/a-0": {"state": "ready"}, "x/a-1": {"state": "drain"}},
    ]
    known = tune_host.known_servers(answers, "x")
    assert {name: one["state"] for name, one in known.items()} == {"a-0": "ready", "a-1": "drain"}


def test_what_is_known_of_a_host_comes_from_its_own_words():
    told = {
        "plan": {"deployment": {}},
        "serving": ["apiary-x-0.service"],
        "current": "r1",
        "lock": {"owner": "tuning by ann@elsewhere, process 1", "out": ["apiary-x-0.service"]},
    }
    seen = tune_host.seen_of("a", "x", told, [], routers=False)
    assert (seen.planned, seen.release, seen.servers) == (True, "r1", None)
    # Of another controller nobody knows whether the run engine runs.
    assert (seen.lock.dead, seen.lock.out) == (False, ("apiary-x-0.service",))


def test_an_ablation_is_a_question_of_one_flag():
    state = begun(knobs={}, ablate="max_num_seqs=64")
    assert state.requested.ablate == "limits.max_num_seqs"
    assert [one.stage for one in state.candidates] == ["current", "ablation"]
    both = arguments(ablate="max_num_seqs=64")
    assert code_of(tune_begin.question, both) == "TRIAL-KNOB"


def test_what_hosts_have_in_common_is_of_the_first_one():
    one = {
        "deployment": {"name": "x", "engine": {"version": "1"}},
        "running": [{"a": 1}],
        "planned": [{"b": 2}],
    }
    other = {**one, "deployment": {"name": "x", "engine": {"version": "2"}}, "running": []}
    options = {"measured_by": {"backend": "vllm"}, "load_hosts": {"l": {}}}
    single = tune_begin.of_hosts({"hosts": {"h": one}, **options})
    assert (single["hosts"], single["neighbours"]) == (["h"], {})
    assert (single["running"], single["others"]) == ([{"a": 1}], [{"b": 2}])
    assert single["measured_by"] == {"backend": "vllm", "load_hosts": ["l"]}
    both = tune_begin.of_hosts({"hosts": {"h": one, "i": other}, **options})
    assert both["engines"] == {"h": "1", "i": "2"}
    assert both["neighbours"] == {"h": [{"a": 1}, {"b": 2}], "i": [{"b": 2}]}


def test_an_ablation_has_a_state_of_its_own():
    assert tune_begin.place_of("/a", "x", "") == Path("/a/tune/x/state.json")
    state = tune_begin.place_of("/a", "x", "--block size=16")
    assert state == Path("/a/ablate/x/--block_size=16/state.json")
