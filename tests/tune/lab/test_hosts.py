# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/tune.yml on two hosts behind a router: who may take part, and what is left: minutes."""

import json

import pytest
import yaml

from loss.fleet import ROOT, await_true

ASKED = ("-e", f"@{ROOT}/tests/tune/lab/asked.yml")
SERVING, ANEW = ("-e", "tune_serving=true"), ("-e", "tune_restart=true")
FIRST, SECOND = "gpu-001", "gpu-002"
# Every replica's engine, whatever its unit says, takes twice as long for a step.
SLOW = "/etc/systemd/system/apiary-.service.d/slow.conf"


@pytest.fixture
def place(operator):
    return operator.artifacts / "tune/qwen3-235b"


@pytest.fixture
def swaps(operator):
    """The second host swaps otherwise than the first: a file of ours lies over the kernel's."""
    setting = "/proc/sys/vm/swappiness"
    operator.fleet.run(
        SECOND, f"echo 99 > /run/swappiness && mount --bind /run/swappiness {setting}"
    )
    yield
    operator.fleet.run(SECOND, f"umount {setting}")


@pytest.fixture
def slow(operator):
    lines = (
        f"mkdir -p {SLOW.rpartition('/')[0]}",
        "echo APIARY_DOUBLE_STEP_SECONDS=0.6 > /etc/slow.env",
        f"printf '[Service]\\nEnvironmentFile=/etc/slow.env\\n' > {SLOW}",
        "systemctl daemon-reload",
    )
    operator.fleet.run(SECOND, " && ".join(lines))
    yield
    operator.fleet.run(
        SECOND,
        f"rm {SLOW} && systemctl daemon-reload && systemctl restart apiary-qwen3-235b.target",
    )


@pytest.fixture
def stopped(operator):
    """Somebody stopped the deployment of the first host."""
    target = "apiary-qwen3-235b.target"
    operator.fleet.run(FIRST, f"systemctl stop {target}")
    down = ["inactive", "inactive"]
    await_true(lambda: operator.active(FIRST) == down, 60, "the replicas are stopped")
    yield
    operator.fleet.run(FIRST, f"systemctl start {target}")


@pytest.fixture
def dead(operator):
    """Nobody gets to the second host any more, and connections that were there are closed."""
    operator.fleet.run(SECOND, "systemctl stop ssh; pkill -x sshd || true")
    yield
    operator.fleet.run(SECOND, "systemctl start ssh")


def by_kind(state, kind):
    return [one for one in state["trials"] if one["kind"] == kind]


def test_a_host_that_is_another_takes_no_part(operator, swaps):
    reported = operator.play("tune", *ASKED, "--check")
    assert reported.code == 0, reported.text
    assert f"host {SECOND} took no part: swappiness: 99 here, 60 on {FIRST}" in reported.text


def test_a_dead_host_is_left_out_and_another_does_it(operator, dead):
    reported = operator.play("tune", *ASKED, "--check")
    assert reported.code == 0, reported.text
    assert f"TRIAL-HOST-GONE: {SECOND}" in reported.text
    assert f"host {SECOND} took no part: could not be reached" in reported.text
    alone = operator.play("tune", *ASKED, "--check", "-e", f"tune_hosts={SECOND}")
    assert alone.code != 0
    assert f"error: TRIAL-HOST-GONE: {SECOND}" in alone.text


def test_a_slow_host_is_left_out_and_a_stopped_one_left_stopped(operator, place, slow, stopped):
    """Both hosts measure the same configuration first; the second takes twice as long."""
    reported = operator.play("tune", *ASKED, *SERVING, *ANEW)
    assert reported.code == 0, reported.text
    state = json.loads((place / "state.json").read_text())
    assert [(one["name"], one["used"]) for one in state["hosts"]] == [
        (FIRST, True),
        (SECOND, False),
    ]
    assert f"host {SECOND} took no part: the control measured" in reported.text
    assert {one["host"] for one in by_kind(state, "alike")} == {FIRST, SECOND}
    assert {one["host"] for one in state["trials"] if one["kind"] != "alike"} == {FIRST}
    # The first is as it was found, and the second serves.
    down = ["inactive", "inactive"]
    await_true(lambda: operator.active(FIRST) == down, 60, "the replicas are stopped again")
    assert operator.active(SECOND) == ["active", "active"]
    for host in (FIRST, SECOND):
        assert operator.fleet.run(host, "ls /var/lib/apiary/rollout") == ""
        plan = json.loads(operator.fleet.run(host, "cat /etc/apiary/qwen3-235b/plan.json"))
        assert plan["deployment"]["limits"]["max_num_seqs"] == 2


def test_two_alike_hosts_measure_in_parallel_and_serve_the_best(operator, place):
    """The winner is a file of variables, and on both hosts."""
    fleet = operator.fleet
    fleet.await_whole()
    reported = operator.play("tune", *ASKED, *SERVING, *ANEW, "-e", "tune_serve=best")
    assert reported.code == 0, reported.text
    state = json.loads((place / "state.json").read_text())
    assert all(one["used"] for one in state["hosts"])
    # Each of the two configurations was tried on a host of its own, at the same time.
    assert {one["host"] for one in by_kind(state, "short")} == {FIRST, SECOND}
    assert state["choice"]["verdict"] == "better"
    # The router sent nothing to what was replaced.
    assert "TASK [Drain | Drain the replicas at every router]" in reported.text
    assert "-    max_num_seqs: 2" in reported.text
    after = yaml.safe_load((place / "tuned.yml").read_text())
    assert after["apiary_deployment"]["limits"]["max_num_seqs"] == 16
    for host in (FIRST, SECOND):
        plan = json.loads(fleet.run(host, "cat /etc/apiary/qwen3-235b/plan.json"))
        assert plan["deployment"]["limits"]["max_num_seqs"] == 16
        assert operator.active(host) == ["active", "active"]
    fleet.await_whole()


def test_requested_once_more_nothing_is_to_be_done(operator, place):
    """What is deployed now is what was chosen."""
    before, engine_runs = (place / "state.json").read_text(), operator.engine_runs()
    reported = operator.play("tune", *ASKED, *SERVING, "-e", f"@{place}/tuned.yml")
    assert reported.code == 0, reported.text
    assert (reported.changed(FIRST), reported.changed(SECOND)) == (0, 0)
    assert ((place / "state.json").read_text(), operator.engine_runs()) == (before, engine_runs)
