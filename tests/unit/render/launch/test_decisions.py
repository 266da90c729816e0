# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the supervisor decides from lines, counters and times."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import backoff
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.client import (
    Load,
    read_load,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import (
    replica_error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.progress import (
    Hang,
    Phases,
    drains_itself,
    duration,
    has_read_weights,
    overdue,
)
from hypothesis import given
from hypothesis import strategies as st

# Lines of vLLM 0.32.0 on CPU and of the documented progress bars, in their order.
START = [
    ("(APIServer pid=7) INFO 11-22 [api_utils.py:1] non-default args: {}", "launch"),
    (
        "(EngineCore pid=9) INFO 11-22 [core.py:1] Initializing a V1 LLM engine (v0.32.0)",
        "distributed",
    ),
    ("INFO [gpu_model_runner.py:1] Starting to load model /srv/models/x...", "weights"),
    (
        "Loading safetensors checkpoint shards:  50% Completed | 12/24 [03:00<03:00, 15.0s/it]",
        "weights",
    ),
    ("INFO [default_loader.py:1] Loading weights took 360.00 seconds", "compile"),
    ("INFO [monitor.py:1] torch.compile takes 54.10 s in total", "compile"),
    ("INFO [gpu_worker.py:1] Available KV cache memory: 150.1 GiB", "memory"),
    (
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  43%|████▎     | 29/67 [00:12<",
        "graphs",
    ),
    ("INFO [core.py:1] init engine (profile, create kv cache, warmup model) took 80 s", "opening"),
    ("INFO:     Application startup complete.", "answering"),
]


def test_phases_follow_the_engines_lines(life):
    phases = Phases(life, now=0)
    phases.enter("launch", now=0)
    seen = []
    for second, (line, _phase) in enumerate(START):
        phases.see(line, now=second)
        seen.append(phases.phase)
    assert seen == [phase for _line, phase in START]
    # A draft model is loaded later; that is no way back.
    phases.see("Starting to load model /srv/models/draft", now=99)
    assert phases.phase == "answering"


def test_a_phase_counts_and_tells_its_time(life):
    phases = Phases(life, now=0)
    phases.see(START[2][0], now=100)
    phases.see(START[3][0], now=200)
    assert phases.text(now=100 + 185) == "loading weights 12/24, 3 min"


def test_lines_that_repeat_while_nothing_happens_are_no_progress(life):
    phases = Phases(life, now=0)
    phases.see("INFO Waiting for 1 local, 0 remote core engine proc(s) to start.", now=50)
    assert (phases.progress, phases.last_line) == (0, "")
    phases.see("[aiter] start build [module_rmsnorm] under /x", now=60)
    assert phases.progress == 60


@given(st.text())
def test_no_line_upsets_the_phases(line):
    phases = Phases(knowledge("serving/life.yml"), now=0)
    phases.see(line)
    assert phases.text()


def test_exactly_one_phase_reads_weights(life):
    assert not has_read_weights(life, "weights")
    assert has_read_weights(life, "compile")
    assert has_read_weights(life, "serving")
    assert not has_read_weights(life, "stopping")
    assert not has_read_weights(life, "")


def test_limits_fit_the_units(life):
    unit = knowledge("serving.yml")["unit"]
    assert life["drain"]["teardown_seconds"] < unit["stop_margin_seconds"]
    agent = life["agent"]
    assert agent["interval_seconds"] + agent["margin_seconds"] < agent["asked_within_seconds"]
    assert life["start"]["deaf_seconds"] < unit["stop_margin_seconds"]
    assert life["start"]["extend_every_seconds"] * 2 < life["start"]["extend_by_seconds"]


PREDICTED = ("WEIGHTS", "KV", "BACKEND")


def test_every_refusal_is_documented_and_says_why(life):
    documented = {
        code
        for name in ("replica", "weights", "weights_writer")
        for code in knowledge(f"findings/{name}.yml")
    }
    for code, entry in life["refusals"]["entries"].items():
        assert code in documented
        assert entry["kind"] in life["exit_statuses"]
        assert entry["reason"]


def test_every_refusal_of_the_code_has_a_status(life):
    host = Path(backoff.__file__).parent
    raised = {
        code
        for path in host.glob("*.py")
        for code in re.findall(r'"(REPLICA-[A-Z-]+)"', path.read_text())
    }
    # Of a replica that goes on serving.
    warnings = {"REPLICA-DRAIN-CUT", "REPLICA-GPU-SHARE"}
    warnings |= {f"REPLICA-PREDICTION-{what}" for what in PREDICTED}
    assert raised - set(life["refusals"]["entries"]) == warnings


def busy(tokens, running=1.0):
    return Load(running, 0.0, tokens)


def test_requests_without_tokens_are_a_hang_and_a_long_prefill_is_not():
    hang = Hang(300, now=0)
    for second in range(0, 300, 10):
        hang.take(busy(5), second)
        assert hang.verdict(second) is None
    hang.take(busy(5), 301)
    assert hang.verdict(301) == "1 requests and not one token for 5 min"


def test_a_request_after_a_long_rest_has_its_time():
    hang = Hang(300, now=0)
    hang.take(busy(5, running=0.0), 1)
    hang.take(busy(5), 5000)
    assert hang.verdict(5001) is None


def test_waiting_requests_count():
    hang = Hang(300, now=0)
    hang.take(Load(0.0, 3.0, 5), 0)
    hang.take(Load(0.0, 3.0, 5), 301)
    assert hang.verdict(301).startswith("3 requests")


def test_tokens_are_life():
    hang = Hang(300, now=0)
    for second in range(0, 3000, 10):
        hang.take(busy(second), second)
        assert hang.verdict(second) is None
        assert not hang.wants_proof(second)


def test_silence_is_a_hang_and_no_question_is_none():
    hang = Hang(300, now=0)
    assert hang.verdict(1000) is None
    hang.take(None, 1000)
    assert hang.verdict(1301) == "/metrics has not answered for 5 min"
    hang.take(busy(1, running=0.0), 1302)
    assert hang.verdict(1303) is None


def test_an_idle_engine_is_asked_now_and_then():
    hang = Hang(300, now=0)
    hang.take(busy(5, running=0.0), 0)
    asked = []
    for second in range(1000):
        if hang.wants_proof(second):
            asked.append(second)
    assert asked == [301, 602, 903]


def test_a_question_that_waits_behind_a_burst_is_no_hang():
    """The burst came between the last look and the question, which waits for its turn."""
    hang = Hang(300, now=0)
    hang.take(busy(5, running=0.0), 0)
    assert hang.wants_proof(301)
    hang.take(Load(400.0, 100.0, 5), 302)
    hang.take(Load(400.0, 100.0, 9000), 310)
    assert not hang.means_hang()


def test_a_question_that_nothing_answers_is_a_hang():
    hang = Hang(300, now=0)
    hang.take(busy(5, running=0.0), 0)
    assert hang.wants_proof(301)
    for second in range(310, 600, 10):
        hang.take(busy(5, running=0.0), second)
    assert hang.means_hang()


@pytest.mark.parametrize(
    ("since", "progress", "fails"),
    [
        (100, 100, False),
        (901, 901, True),
        # Past its start timeout, but loading yet.
        (3700, 60, False),
        (3700, 200, True),
        (3 * 3600 + 1, 1, True),
    ],
)
def test_a_start_ends_when_it_hangs_and_not_when_it_is_slow(life, since, progress, fails):
    assert bool(overdue(life, 3600, since, progress)) is fails


@pytest.mark.parametrize(
    ("words", "drains"),
    [
        (["--shutdown-timeout", "60"], True),
        (["--shutdown-timeout=60"], True),
        (["--shutdown_timeout", "60"], True),
        (["--shutdown-timeout", "0"], False),
        (["--shutdown-timeout"], False),
        (["--port", "8000"], False),
    ],
)
def test_whether_an_engine_drains_itself(life, words, drains):
    assert drains_itself(["vllm", "serve", *words], life["drain"]["flag"]) is drains


def test_load_is_summed_over_engines_and_read_from_the_right_series(life):
    page = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 7.0\n'
        'vllm:generation_tokens_total{engine="0"} 1.5e+06\n'
        'vllm:prompt_tokens_total{engine="0"} 10.0\n'
        'vllm:prompt_tokens_created{engine="0"} 1.7e+09\n'
    )
    assert read_load(page, life["watchdog"]) == Load(5.0, 1.0, 1500010.0)
    # --disable-log-stats
    assert read_load("python_info 1.0\n", life["watchdog"]) == Load(0.0, 0.0, 0.0, told=False)


def test_an_engine_without_statistics_is_never_asked():
    """Its queue may be long (--disable-log-stats), and the question would wait in it."""
    hang = Hang(100, now=0)
    silent = Load(0.0, 0.0, 0.0, told=False)
    for now in range(0, 1000, 10):
        hang.take(silent, now)
        assert not hang.wants_proof(now)
        assert hang.verdict(now) is None
    hang.take(busy(5.0, running=0.0), 1000)
    assert hang.wants_proof(1200)


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (185, "3 min"), (3900, "1 h 5 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_starts_that_fail_wait_longer_and_longer(tmp_path, make_context, life, monkeypatch):
    own = tmp_path / "run/apiary/x.service"
    own.mkdir(parents=True)
    context = make_context({"RUNTIME_DIRECTORY": str(own)})
    life["backoff"]["jitter"] = 0
    waited = []
    monkeypatch.setattr(context, "pause", waited.append)
    for _start in range(8):
        backoff.wait(context, lambda _: None)
    # RestartSec= comes on top.
    assert waited == [10, 30, 70, 150, 290, 290]
    backoff.forget(context)
    backoff.wait(context, lambda _: None)
    assert len(waited) == 6
    assert life["backoff"]["first_seconds"] == knowledge("serving.yml")["unit"]["restart_seconds"]


def test_a_start_without_weights_pauses_and_ends_for_systemd_mounts_before_the_next(
    tmp_path, make_context, life, monkeypatch
):
    context = make_context({"RUNTIME_DIRECTORY": str(tmp_path)})
    events = []

    def check(_context):
        events.append("look")
        return replica_error("REPLICA-WEIGHTS", "nothing is mounted")

    monkeypatch.setattr(context, "pause", lambda _seconds: events.append("pause"))
    (tmp_path / "starts").write_text("3\n")
    with pytest.raises(ApiaryError, match="nothing is mounted"):
        backoff.wait(context, check)
    assert events == ["look", "pause"]
    # Who asks for a start (a stop forgets the count) hears at once what is missing.
    backoff.forget(context)
    backoff.wait(context, check)
    assert events == ["look", "pause"]


def pauses(context, *starts):
    return [backoff.pause_seconds(context, failed) for failed in starts]


def test_no_two_replicas_of_a_rack_start_in_step(make_context, monkeypatch):
    """And each pauses the same when the same happens again."""
    seen = {}
    for number in range(50):
        host = os.uname_result(("Linux", f"gpu-{number:03}", "6.1", "#1", "x86_64"))
        monkeypatch.setattr(os, "uname", lambda host=host: host)
        for unit in ("apiary-x-0.service", "apiary-x-1.service"):
            context = make_context(unit=unit)
            seen[host.nodename, unit] = pauses(context, 6)
            assert pauses(context, 6) == seen[host.nodename, unit]
    lengths = sorted(seconds for (seconds,) in seen.values())
    assert len(set(lengths)) == 100
    assert 215 < lengths[0] < 225
    assert 285 < lengths[-1] <= 290


def test_it_never_gives_up_and_never_pauses_longer_than_the_limit(make_context, life):
    context = make_context()
    for failed in (1, 10, 100, 10**6):
        (pause,) = pauses(context, failed)
        assert 0 <= pause + life["backoff"]["first_seconds"] <= life["backoff"]["most_seconds"]


SHOWN = """Id=a.service
ActiveState={}
SubState={}
Job={}

Id=b.service
ActiveState=inactive
SubState=dead
Job=0
"""


@pytest.mark.parametrize(
    ("active", "sub", "job", "state"),
    [
        ("active", "running", "0", backoff.PASSED),
        ("activating", "start", "17", backoff.COMING),
        ("inactive", "dead", "17", backoff.COMING),
        # One that crashes again and again keeps nobody waiting.
        ("activating", "auto-restart", "0", backoff.ABSENT),
        ("failed", "failed", "0", backoff.ABSENT),
        ("deactivating", "stop-sigterm", "0", backoff.ABSENT),
    ],
)
def test_what_systemd_says_of_the_first(monkeypatch, active, sub, job, state):
    monkeypatch.setattr(backoff.shutil, "which", lambda name: name)
    done = subprocess.CompletedProcess([], 0, SHOWN.format(active, sub, job), "")
    monkeypatch.setattr(backoff.subprocess, "run", lambda *_args, **_options: done)
    assert backoff._systemd(("a.service", "b.service")) == {
        "a.service": state,
        "b.service": backoff.ABSENT,
    }


@pytest.fixture
def replicas(tmp_path, monkeypatch, make_context):
    """The third replica of a host; tell what systemd and the phases say of the other two."""

    def make(states, phases):
        monkeypatch.setattr(backoff, "_systemd", lambda _units: states)
        own = tmp_path / "run/apiary/c.service"
        for unit, phase in {**phases, "c.service": ""}.items():
            (own.parent / unit).mkdir(parents=True, exist_ok=True)
            (own.parent / unit / "phase").write_text(phase)
        return make_context(
            {"RUNTIME_DIRECTORY": str(own)}, unit="c.service", after=("a.service", "b.service")
        )

    return make


@pytest.mark.parametrize(
    ("states", "phases"),
    [
        ({"a.service": backoff.ABSENT, "b.service": backoff.ABSENT}, {}),
        # One has read them: all others may go, also beside one that reads from the page cache.
        ({"a.service": backoff.COMING, "b.service": backoff.COMING}, {"a.service": "memory"}),
        ({"a.service": backoff.PASSED, "b.service": backoff.COMING}, {"b.service": "weights"}),
        # Nobody to ask and nobody showed himself, or not any more.
        (None, {}),
        (None, {"a.service": "stopping"}),
    ],
)
def test_nobody_waits_for_nothing(replicas, life, states, phases):
    life["after_first"]["settle_seconds"] = 0
    backoff.wait_turn(replicas(states, phases))


def test_a_wait_has_its_limit(replicas, life):
    life["after_first"].update(limit_seconds=0.2, poll_seconds=0.05)
    context = replicas(
        {"a.service": backoff.COMING, "b.service": backoff.ABSENT}, {"a.service": "weights"}
    )
    backoff.wait_turn(context)
    assert Path(context.phase_file).read_text() == "waiting\n"
