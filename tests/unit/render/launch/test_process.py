# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole supervisor as a process, with a fake engine and a service manager that listens."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.web_keys import replica_certificate

from support.waiting import await_true

from .conftest import alive


def complete(port, tokens, key=None):
    """The status of a completion of so many tokens."""
    body = json.dumps({"model": "m", "max_tokens": tokens})
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as asking:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        asking.request("POST", "/v1/completions", body, headers)
        answer = asking.getresponse()
        answer.read()
        return answer.status


def test_ready_comes_after_an_answer_and_a_stop_leaves_nothing(supervise):
    replica = supervise(lines=["Starting to load model x"], start_seconds=0.3)
    replica.message("READY=1")
    core = replica.core()
    before = "\n".join(replica.messages)
    assert "STATUS=checking the host" in before
    assert "STATUS=loading weights, 0 s" in before
    assert "EXTEND_TIMEOUT_USEC=60000000" in before
    assert replica.phase() == "serving"
    replica.message("WATCHDOG=1")
    replica.stop()
    replica.message("STOPPING=1")
    assert replica.ended() == 0
    assert not alive(core)
    assert replica.phase() == "stopping"


def test_not_ready_while_the_model_does_not_answer(supervise):
    """vLLM's /health says 200 before anybody knows whether the model answers."""
    replica = supervise(refuse=404, change={"start": {"refused_seconds": 0.5}})
    assert replica.ended() == 1
    assert "REPLICA-WRONG-ANSWER" in replica.error
    assert "no such model" in replica.error
    assert not any("READY=1" in told for told in replica.messages)


def test_the_key_goes_to_the_engine_and_nowhere_else(supervise, tmp_path):
    (tmp_path / "VLLM_API_KEY").write_text("s3cr3t-of-tests\n")
    replica = supervise(
        key="s3cr3t-of-tests",
        spec={"secrets": ("VLLM_API_KEY",)},
        environment={"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    replica.message("READY=1")
    replica.stop()
    assert replica.ended() == 0
    # The fake engine's habits are in its argument; all else must not have it.
    told = "\n".join(replica.messages) + replica.error + replica.output["out"].decode()
    assert "s3cr3t" not in told


def test_several_keys_are_accepted_and_in_no_argument_and_no_line(supervise, tmp_path):
    """While a key turns: routers and clients show the one or the other."""
    (tmp_path / "VLLM_API_KEY").write_text("s3cr3t-that-goes\ns3cr3t-that-comes\n")
    replica = supervise(
        spec={"secrets": ("VLLM_API_KEY",)}, environment={"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    assert replica.line("non-default args") == "non-default args: {'api_key': ['***', '***']}"
    replica.message("READY=1")
    path = replica.runtime / "keys.yaml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert quiet_complete(replica.port, 1, "s3cr3t-that-goes") == 200
    assert quiet_complete(replica.port, 1, "s3cr3t-that-comes") == 200
    assert quiet_complete(replica.port, 1, "another") == 401
    arguments = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
    assert not any(b"s3cr3t-that" in one for one in arguments)
    replica.stop()
    assert replica.ended() == 0
    told = "\n".join(replica.messages) + replica.error + replica.output["out"].decode()
    assert "s3cr3t" not in told


def test_an_engine_that_speaks_tls_is_verified(supervise, tmp_path):
    web, pem = str(tmp_path / "web"), tmp_path / "d.pem"
    pem.write_text(replica_certificate(web, "gpu-001", "d", ["10.0.0.1"]))
    replica = supervise(
        spec={"secrets": ("d.pem",)}, environment={"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    replica.message("READY=1")
    assert quiet_complete(replica.port, 1) == 0  # in the clear
    replica.stop()
    assert replica.ended() == 0
    # What says who it is goes by name alone, and is no variable of the engine's.
    assert "PRIVATE" not in "\n".join(replica.messages) + replica.error


def test_an_engine_with_a_certificate_of_nobody_known_never_serves(supervise, tmp_path):
    own, other = (replica_certificate(str(tmp_path / name), "gpu-001", "d", []) for name in "ab")
    (tmp_path / "d.pem").write_text(
        own.rpartition("-----BEGIN CERTIFICATE")[0]
        + "-----BEGIN CERTIFICATE"
        + other.rpartition("-----BEGIN CERTIFICATE")[2]
    )
    replica = supervise(
        spec={"secrets": ("d.pem",)}, environment={"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    # It asks again and again, and says nothing before it knows who answers.
    assert ["ALERT" in replica.line("refused: ") for _time in range(3)] == [True] * 3
    assert replica.phase() != "serving"
    replica.stop()
    replica.message("STOPPING=1")
    replica.ended()
    assert not any("READY=1" in told for told in replica.messages)


def test_a_missing_credential_refuses_for_good(supervise):
    replica = supervise(spec={"secrets": ("HF_TOKEN",)})
    assert replica.ended() == 78
    assert "REPLICA-NO-SECRET" in replica.error


def test_an_engine_whose_core_dies_fails_the_unit(supervise):
    """vLLM exits 0 then, so systemd would take it for a wish."""
    replica = supervise()
    replica.message("READY=1")
    os.kill(replica.core(), signal.SIGKILL)
    assert replica.ended() == 1
    assert "REPLICA-ENGINE-DIED" in replica.error
    assert "exited with status 0 while it served" in replica.error


@pytest.mark.parametrize(("status", "ends"), [(2, 2), (1, 1), (0, 1), (78, 1)])
def test_an_engine_that_ends_while_it_starts(supervise, status, ends):
    replica = supervise(exit=status)
    assert replica.ended() == ends
    code = "REPLICA-ENGINE-ARGUMENTS" if ends == 2 else "REPLICA-ENGINE-DIED"
    assert code in replica.error


def test_the_cause_of_a_death_is_named_and_recorded_and_has_no_secret(supervise, tmp_path):
    (tmp_path / "VLLM_API_KEY").write_text("s3cr3t-of-tests\n")
    lines = [
        "(Worker_TP1 pid=7) ERROR 11-22 05:00:01 [x.py:9] OSError: [Errno 13] Permission denied:"
        " '/srv/s3cr3t-of-tests/a'",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    replica = supervise(
        lines=lines,
        exit=1,
        failed_starts=1,
        spec={"secrets": ("VLLM_API_KEY",)},
        environment={"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert replica.ended() == 1
    cause = "cause weights_unreadable: the engine's user may not read or write /srv/***/a"
    assert f"before it answered: {cause}" in replica.error
    assert "remedy: Look at the mount" in replica.error
    recorded = json.loads((replica.runtime / "died.json").read_text())
    assert (recorded["code"], recorded["cause"]) == ("REPLICA-ENGINE-DIED", "weights_unreadable")
    assert recorded["message"].endswith(cause)


def test_an_executable_that_is_not_there(supervise):
    replica = supervise()
    replica.stop()
    replica.ended()
    done = supervise(spec={"weights": "/nonexistent"})
    assert done.ended() == 75
    assert "REPLICA-WEIGHTS" in done.error


def test_a_core_that_hangs_with_a_request_is_noticed(supervise):
    replica = supervise(spec={"hang_seconds": 1})
    replica.message("READY=1")
    core = replica.core()
    os.kill(core, signal.SIGSTOP)
    statuses = []
    asking = threading.Thread(target=lambda: statuses.append(quiet_complete(replica.port, 1)))
    asking.start()
    assert replica.ended() == 1
    asking.join()
    # From the API process, which the core's death lets speak.
    assert statuses == [500]
    assert "REPLICA-HUNG" in replica.error
    assert "1 requests and not one token" in replica.error
    assert not alive(core)


def quiet_complete(port, tokens, key=None):
    try:
        return complete(port, tokens, key)
    except (OSError, http.client.HTTPException):
        return 0


def test_a_core_that_hung_while_idle_is_noticed(supervise):
    """Its own counters are those of before it hung."""
    replica = supervise(spec={"hang_seconds": 0.5})
    replica.message("READY=1")
    os.kill(replica.core(), signal.SIGSTOP)
    assert replica.ended() == 1
    assert "REPLICA-HUNG" in replica.error


def test_answers_to_questions_are_counted_while_it_serves(supervise):
    replica = supervise(spec={"quality_questions_per_hour": 72000})
    path = replica.runtime / "quality.json"
    replica.message("READY=1")
    await_true(lambda: path.exists() and json.loads(path.read_text())["counts"]["wrong"] > 1)
    assert len(json.loads(path.read_text())["answers"]) > 1
    assert replica.process.poll() is None


def test_an_api_that_says_nothing_any_more_is_noticed(supervise):
    replica = supervise(metrics=False, spec={"hang_seconds": 1})
    replica.message("READY=1")
    assert replica.ended() == 1
    assert "/metrics has not answered" in replica.error


def test_a_slow_request_among_busy_ones_is_no_hang(supervise):
    replica = supervise(token_seconds=3, busy=10, spec={"hang_seconds": 1})
    replica.message("READY=1")
    assert complete(replica.port, 1) == 200
    assert replica.process.poll() is None


def test_a_deaf_engine_is_killed_soon_after_a_stop(supervise):
    """vLLM loses the signal while it starts, and ends ten minutes later."""
    replica = supervise(lines=["Starting to load model x"], start_seconds=600, deaf=True)
    replica.message("STATUS=loading weights")
    replica.stop()
    assert replica.ended() == 0
    assert "error: REPLICA" not in replica.error


@pytest.mark.parametrize(
    ("drains", "words"), [(True, ["--shutdown-timeout", "60"]), (False, [])], ids=["new", "old"]
)
def test_requests_in_flight_end_before_the_engine_does(supervise, drains, words):
    """Only vLLM 0.18.1 and newer drains, and only when told to."""
    replica = supervise(
        *words, token_seconds=0.5, drains=drains, spec={"drain_timeout_seconds": 20}
    )
    replica.message("READY=1")
    statuses = []
    asking = threading.Thread(
        target=lambda: statuses.append(quiet_complete(replica.port, 4)), daemon=True
    )
    asking.start()
    replica.message("STATUS=serving 1")
    replica.stop()
    replica.message("STATUS=draining 1")
    replica.stop()
    asking.join(120)
    assert statuses == [200]
    assert replica.ended() == 0


def test_a_drain_ends_at_its_limit(supervise):
    replica = supervise(token_seconds=0.5, drains=True, spec={"drain_timeout_seconds": 1})
    replica.message("READY=1")
    asking = threading.Thread(target=quiet_complete, args=(replica.port, 1000))
    asking.start()
    replica.message("STATUS=serving 1")
    replica.stop()
    assert replica.ended() == 0
    asking.join()
    assert "warning: REPLICA-DRAIN-CUT" in replica.error
    assert "1 requests did not end within 1 s" in replica.error


def test_a_start_that_shows_nothing_new_ends(supervise):
    lines = [
        "Starting to load model x",
        "Waiting for 1 local, 0 remote core engine proc(s) to start.",
    ]
    replica = supervise(lines=lines, start_seconds=600, change={"start": {"stall_seconds": 1}})
    assert replica.ended() == 1
    assert "REPLICA-NOT-READY" in replica.error
    assert "it was loading weights" in replica.error
    assert "its last line: Starting to load model x" in replica.error


def test_the_engines_bytes_arrive_as_they_are(supervise):
    """Partial lines, huge lines, carriage returns and bytes that are no text."""
    out = b"\xff\xfe no text\n\n" + b"x" * 300_000 + b"\nbar 1%\rbar 2%\r\nlast, without an end"
    err = b"".join(b"%d\n" % number for number in range(20_000))
    # Longer than a command line takes.
    replica = supervise(stdout=out[:50].hex(), stderr=err[:60_000].hex(), exit=1)
    assert replica.ended() == 1
    assert replica.output["out"] == out[:50]
    assert err[:60_000] in replica.output["err"]


def test_nothing_is_left_of_a_replica_that_is_killed_while_it_serves(supervise):
    replica = supervise()
    replica.message("READY=1")
    core = replica.core()
    replica.process.kill()
    replica.process.wait()
    await_true(lambda: not alive(core))


def test_a_process_that_lost_its_parent_is_ended_too(supervise):
    """It would hold the GPUs' memory against the next start."""
    replica = supervise(forsakes=True)
    core = replica.core()
    assert replica.ended() == 1
    assert not alive(core)


def test_a_closed_notify_socket_does_no_harm(supervise):
    replica = supervise(environment={"NOTIFY_SOCKET": "/nonexistent/socket"})
    replica.core()
    assert complete(replica.port, 1) == 200
    replica.stop()
    assert replica.ended() == 0


def test_a_taken_port_is_refused_for_now(supervise):
    with socket.create_server(("127.0.0.1", 0)) as server:
        replica = supervise(spec={"port": server.getsockname()[1]})
        assert replica.ended() == 75
    assert "REPLICA-PORT-BUSY" in replica.error


def test_the_second_replica_reads_after_the_first(supervise):
    first = supervise(lines=["Starting to load model x"], start_seconds=600)
    first.message("STATUS=loading weights")
    other = "apiary-demo-1.service"
    second = supervise(
        spec={"unit": other, "after": ("apiary-demo-0.service",)},
        environment={
            "PATH": "/nonexistent",
            "RUNTIME_DIRECTORY": str(first.runtime.parent / other),
        },
    )
    second.message("STATUS=waiting for apiary-demo-0.service to read the weights")
    (first.runtime / "phase").write_text("compile\n")
    second.message("READY=1")


def test_a_journal_that_takes_nothing_does_not_stop_the_engine(supervise):
    """A full disk, a stopped journald."""
    replica = supervise(full=True, lines=["x" * 500] * 100)
    replica.message("READY=1")
    assert complete(replica.port, 1) == 200
    replica.stop()
    assert replica.ended() == 0


AT_ONCE = {"backoff": {"first_seconds": 1, "most_seconds": 1}}


def test_a_stop_that_was_asked_for_forgets_the_starts_that_failed(supervise):
    """An asked-for restart keeps the runtime directory, and so would wait."""
    replica = supervise(change=AT_ONCE, failed_starts=3)
    replica.message("READY=1")
    assert replica.starts() == "4"
    replica.stop()
    assert replica.ended() == 0
    assert replica.starts() is None


def test_a_stop_while_a_start_waits_forgets_them_too(supervise):
    replica = supervise(failed_starts=3)
    replica.message("STATUS=waiting 30 s after 3 failed starts")
    replica.stop()
    assert replica.ended() == 0
    assert replica.starts() is None


def test_an_engine_that_dies_is_one_more_failed_start(supervise):
    replica = supervise(change=AT_ONCE, failed_starts=3)
    replica.message("READY=1")
    os.kill(replica.core(), signal.SIGKILL)
    assert replica.ended() == 1
    assert replica.starts() == "4"


def test_a_core_that_dies_takes_its_api_along(supervise):
    """An API process without a core answers 500 for seconds, while others could serve."""
    name = "fake-core"
    replica = supervise(core_name=name, outlives=600, change={"core": {"names": [name]}})
    replica.message("READY=1")
    os.kill(replica.core(), signal.SIGKILL)
    assert replica.ended() == 1
    assert "the engine's core process ended while it served" in replica.error
